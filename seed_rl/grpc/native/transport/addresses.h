// Addresses to listen at: checks that they are free, and bound sockets.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_

#include <netdb.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/fd.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// Whether the address is a Unix socket, with a file ("unix:/path") or without one
// ("unix-abstract:name").
bool IsUnix(const std::string& address);

// The path of a Unix socket's file; empty for other addresses.
std::string SocketPath(const std::string& address);

// Checks that a server may listen on `address`. A dead server's socket file is fine (it is
// replaced); one that a server is listening on is an error, as is a file of another kind.
Status CheckFree(const std::string& address);

// A TCP address, IPv4 or IPv6, with its port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

// Finds the addresses of a host name, in order of preference. `port` is a number or service name.
using Resolve = std::function<Status(const std::string& host, const std::string& port,
                                     std::vector<SocketAddress>* addresses)>;

// Uses getaddrinfo(3).
Status ResolveWithSystem(const std::string& host, const std::string& port,
                         std::vector<SocketAddress>* addresses);

struct BoundSocket {
  Fd fd;             // Bound, but does not listen.
  std::string host;  // Numeric; [::1] in brackets.
  int port = 0;
};

// Reserves a TCP port at all addresses of a host, so that a server listens at all of them or fails.
// gRPC itself is satisfied with one: for "localhost" it would serve ::1 although another process
// has 127.0.0.1, and clients would reach one or the other.
//
// Binds "host:port"; port 0 picks one that is free at every address. Skips addresses that this
// machine does not have, such as ::1 without IPv6, unless there are no others.
//
// Returns kUnavailable if the host has no address here or the port is in use at one of them,
// kInvalidArgument if the port is invalid or `address` has another form; `sockets` is then empty.
Status BindAll(const std::string& address, std::vector<BoundSocket>* sockets,
               const Resolve& resolve = ResolveWithSystem);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
