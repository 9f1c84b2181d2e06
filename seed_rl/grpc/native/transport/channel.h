// Connects a client to a server.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// The clock of gRPC's deadlines.
using SystemClock = std::chrono::system_clock;
SystemClock::duration ToDuration(double seconds);

// A channel with a connection of its own, not yet connected.
std::shared_ptr<grpc::Channel> OpenChannel(const ClientConfig& config);

// Adds the token, if any.
void Authenticate(const ClientConfig& config, grpc::ClientContext* context);

// Waits for the server, up to `connect_timeout_s`, and gets its description.
Status Connect(const ClientConfig& config, std::shared_ptr<grpc::Channel>* channel,
               std::string* description);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
