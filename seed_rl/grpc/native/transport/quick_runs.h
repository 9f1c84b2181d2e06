// Which runs may be expected to be quick, so that the network thread may run them itself.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_QUICK_RUNS_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_QUICK_RUNS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace seed_rl::transport {

// Predicts from a function's past runs. Inputs are untrusted and may stall the network thread:
// trust takes many quick runs, covers similar batches only, and is lost with one slow run. Not
// thread-safe.
class QuickRuns {
 public:
  // Records a run; `ok`: it did not fail. A quick failure proves nothing.
  void Note(std::chrono::steady_clock::duration time, int64_t rows, size_t bytes, bool ok);
  // Whether a run on a batch of this size should be quick.
  bool Expects(int64_t rows, size_t bytes) const;

 private:
  static constexpr int64_t kLeastProof = 32;

  int64_t proof_ = kLeastProof;  // Number of quick runs in a row that earn trust.
  int64_t runs_ = 0;             // Quick runs since the last slow one.
  int64_t rows_ = 0;             // Largest size of these.
  size_t bytes_ = 0;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_QUICK_RUNS_H_
