// What "host:port" and "unix:/path" addresses need besides gRPC.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_

#include <netdb.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// Whether the address is that of a Unix socket.
bool IsUnix(const std::string& address);

// Checks that a server may listen on `address`. A socket file that a dead server left is fine (gRPC
// replaces it); one that a living server listens on is an error, as is a file that is no socket.
Status CheckFree(const std::string& address);

// An address of TCP, IPv4 or IPv6, with its port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

// Finds the addresses of a host name, in order of preference. `port` is a number or a service's
// name.
using Resolve = std::function<Status(const std::string& host, const std::string& port,
                                     std::vector<SocketAddress>* addresses)>;

// Asks the system, as getaddrinfo(3) does.
Status ResolveWithSystem(const std::string& host, const std::string& port,
                         std::vector<SocketAddress>* addresses);

// Holds a TCP port at all addresses of a name, so that either a server listens at all of them or
// the name is refused. gRPC by itself is content with one: with "localhost" it would serve ::1
// while a stranger has 127.0.0.1, and clients reach one or the other.
//
// The sockets are bound but do not listen, which lets gRPC bind the same ports beside them.
class PortClaim {
 public:
  // Claims "host:port"; port 0 takes one that is free at every address. Addresses that this machine
  // does not have, such as ::1 without IPv6, are left out while there are others. Addresses of
  // other kinds need no claim.
  //
  // Returns kUnavailable if the name has no address here or the port is in use at one of them,
  // kInvalidArgument if the port is no port.
  Status Take(const std::string& address, const Resolve& resolve = ResolveWithSystem);

  // What a server is to listen on, in numbers: "127.0.0.1:80", "[::1]:80".
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  class Socket {
   public:
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
      std::swap(fd_, other.fd_);
      return *this;
    }
    ~Socket();
    int fd() const { return fd_; }

   private:
    int fd_;
  };

  // Binds at every address and returns 0, or the error number and the address where it failed.
  int Bind(std::vector<SocketAddress> places, std::string* failed);

  std::vector<Socket> sockets_;
  std::vector<std::string> addresses_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_ADDRESSES_H_
