// How a server configures gRPC.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// An upper bound of a call's arguments; the largest size_t if there is none.
size_t MaxCallBytes(const Binding& binding, int64_t max_batch_size);

// `max_call_bytes`: no call has larger arguments.
void SetChannelArguments(const ServerConfig& config, size_t max_call_bytes,
                         grpc::ServerBuilder* builder);

// TLS if there is a certificate.
std::shared_ptr<grpc::ServerCredentials> TcpCredentials(const ServerConfig& config);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_
