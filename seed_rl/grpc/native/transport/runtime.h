// Settings of gRPC and what it is built on, for the whole process.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_

#include <absl/synchronization/mutex.h>

namespace seed_rl::transport {

// To be called before anything else of gRPC's.
inline void ConfigureRuntime() {
  // Debian builds Abseil with its detector of lock order cycles, which takes 5 % of a call's time.
  // This is the transport's own Abseil; TensorFlow has another.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
