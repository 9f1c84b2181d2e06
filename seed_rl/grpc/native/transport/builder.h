// How a server configures gRPC.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

constexpr size_t kUnboundedCall = std::numeric_limits<size_t>::max();

// An upper bound of a call's arguments; kUnboundedCall if there is none.
size_t MaxCallBytes(const Binding& binding, int64_t max_batch_size);

// The largest message that is received at all, if no call's arguments are larger than
// `max_call_bytes`: gRPC keeps what has arrived of a message until it is complete.
int MaxReceiveBytes(const ServerConfig& config, size_t max_call_bytes);

void SetChannelArguments(const ServerConfig& config, size_t max_call_bytes,
                         grpc::ServerBuilder* builder);

// TLS if there is a certificate.
std::shared_ptr<grpc::ServerCredentials> TcpCredentials(const ServerConfig& config);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BUILDER_H_
