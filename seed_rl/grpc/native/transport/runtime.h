// Process-wide settings of gRPC and Abseil.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_

#include <absl/synchronization/mutex.h>

namespace seed_rl::transport {

// Must be called before any use of gRPC.
inline void ConfigureRuntime() {
  // Debian's Abseil detects lock order cycles, which takes 5 % of a call's time. TensorFlow has an
  // Abseil of its own, which this does not change.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
