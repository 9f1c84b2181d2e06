// Process-wide settings of gRPC and Abseil.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_

namespace seed_rl::transport {

// Must be called before any use of gRPC.
void ConfigureRuntime();

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_RUNTIME_H_
