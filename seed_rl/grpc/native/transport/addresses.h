// What "host:port" and "unix:/path" addresses need besides gRPC.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_

#include <string>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// Whether the address is that of a Unix socket.
bool IsUnix(const std::string& address);

// Checks that a server may listen on `address`. A socket file that a dead server left is fine (gRPC
// replaces it); one that a living server listens on is an error, as is a file that is no socket.
Status CheckFree(const std::string& address);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
