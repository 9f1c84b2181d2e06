#include "seed_rl/grpc/native/transport/quick_runs.h"

#include <algorithm>

namespace seed_rl::transport {
namespace {

// A run that takes less than this is quick: running it on a network thread saves more time than it
// costs the calls that wait for that thread.
constexpr auto kQuick = std::chrono::microseconds(100);
// A run on a network thread that takes this long delays all clients. After each, trust takes
// kMoreProof times as many quick runs.
constexpr auto kVerySlow = std::chrono::milliseconds(10);
constexpr int64_t kMoreProof = 16;
constexpr int64_t kMostProof = 1 << 20;
// Trust covers batches this many times as large as those that were quick.
constexpr int64_t kGrowth = 2;

}  // namespace

void QuickRuns::Note(std::chrono::steady_clock::duration time, int64_t rows, size_t bytes,
                     bool ok) {
  if (time < kQuick) {
    if (!ok) return;
    ++runs_;
    rows_ = std::max(rows_, rows);
    bytes_ = std::max(bytes_, bytes);
    return;
  }
  runs_ = rows_ = 0;
  bytes_ = 0;
  if (time >= kVerySlow) proof_ = std::min(proof_ * kMoreProof, kMostProof);
}

bool QuickRuns::Expects(int64_t rows, size_t bytes) const {
  return runs_ >= proof_ && rows <= kGrowth * rows_ && bytes <= kGrowth * bytes_;
}

}  // namespace seed_rl::transport
