// A client's connection to a server, before any call.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// What gRPC's deadlines are given in.
using SystemClock = std::chrono::system_clock;
SystemClock::duration ToDuration(double seconds);

// Adds the token, if there is one.
void Authenticate(const ClientConfig& config, grpc::ClientContext* context);

// Waits for the server, as long as the configuration allows, and asks for its description.
Status Connect(const ClientConfig& config, std::shared_ptr<grpc::Channel>* channel,
               std::string* description);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
