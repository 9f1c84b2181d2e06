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

// Reserves a TCP port at all addresses of a host, so that a server listens at all of them or fails.
// gRPC itself is satisfied with one: for "localhost" it would serve ::1 although another process
// has 127.0.0.1, and clients would reach one or the other.
class PortClaim {
 public:
  // Claims "host:port"; port 0 picks one that is free at every address. Skips addresses that this
  // machine does not have, such as ::1 without IPv6, unless there are no others.
  //
  // Returns kUnavailable if the host has no address here or the port is in use at one of them,
  // kInvalidArgument if the port is invalid or `address` has another form.
  Status Take(const std::string& address, const Resolve& resolve = ResolveWithSystem);

  // The numeric addresses to listen on: "127.0.0.1:80", "[::1]:80".
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Hands over the sockets, one per address; they are bound but do not listen.
  std::vector<Fd> TakeSockets() { return std::move(sockets_); }

 private:
  // Binds at every address; returns 0, or an error number and in `failed` the address.
  int Bind(std::vector<SocketAddress> places, std::string* failed);

  std::vector<Fd> sockets_;
  std::vector<std::string> addresses_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
