#include "seed_rl/grpc/native/transport/runtime.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <chrono>
#include <cstdio>
#include <mutex>

namespace seed_rl::transport {
namespace {

constexpr int kMessagesPerSecond = 2;

// Prints gRPC's messages, but few: strangers cause some of them, and could fill a disk.
void Log(gpr_log_func_args* arguments) {
  using Clock = std::chrono::steady_clock;
  static std::mutex mu;
  static Clock::time_point second = Clock::now();  // Guarded by mu.
  static int printed = 0;                          // In that second. Guarded by mu.
  std::lock_guard<std::mutex> lock(mu);
  const Clock::time_point now = Clock::now();
  if (now - second >= std::chrono::seconds(1)) {
    second = now;
    printed = 0;
  }
  if (++printed > kMessagesPerSecond) return;
  std::fprintf(stderr, "gRPC: %s\n", arguments->message);
}

}  // namespace

void ConfigureRuntime() {
  // Debian's Abseil detects lock order cycles, which takes 5 % of a call's time. TensorFlow has an
  // Abseil of its own, which this does not change.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function(Log);
}

}  // namespace seed_rl::transport
