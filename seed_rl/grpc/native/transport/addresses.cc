#include "seed_rl/grpc/native/transport/addresses.h"

#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace seed_rl::transport {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr char kAbstractPrefix[] = "unix-abstract:";
constexpr unsigned long kLargestPort = 65535;
// Maximum attempts to find a port that is free at every address.
constexpr int kPortAttempts = 100;

// Checks that no server listens at a Unix socket's path.
Status CheckNoListener(const std::string& address, const std::string& path) {
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Perhaps for lack of descriptors: the file may be a live server's, and must stay.
  if (!fd.ok()) {
    return {Code::kUnavailable, "Cannot listen on " + address + ": " + std::strerror(errno)};
  }
  sockaddr_un place = {};
  place.sun_family = AF_UNIX;
  std::strncpy(place.sun_path, path.c_str(), sizeof(place.sun_path) - 1);
  const int result = connect(fd.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place));
  // Any other error may mean a live server: its backlog is full, or it is another user's.
  if (result != 0 && (errno == ECONNREFUSED || errno == ENOENT)) return {};
  return {Code::kUnavailable,
          "Another server is listening on " + address + "; stop it or choose another address"};
}

// Splits "host:port" or "[host]:port", with or without a scheme that gRPC knows. Returns false for
// other addresses.
bool SplitHostPort(std::string address, std::string* host, std::string* port) {
  for (const std::string scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (address.rfind(scheme, 0) != 0) continue;
    address = address.substr(scheme.size());
    break;
  }
  const size_t colon = address.rfind(':');
  if (IsUnix(address) || colon == std::string::npos || colon == 0) return false;
  *host = address.substr(0, colon);
  *port = address.substr(colon + 1);
  if (host->front() == '[' && host->back() == ']') {
    *host = host->substr(1, host->size() - 2);
  } else if (host->find(':') != std::string::npos) {
    return false;
  }
  return !host->empty() && !port->empty();
}

bool IsPort(const std::string& port) {
  const bool number = port.find_first_not_of("0123456789") == std::string::npos;
  return !number || (port.size() <= 5 && std::strtoul(port.c_str(), nullptr, 10) <= kLargestPort);
}

in_port_t* Port(SocketAddress* place) {
  if (place->storage.ss_family == AF_INET6) {
    return &reinterpret_cast<sockaddr_in6*>(&place->storage)->sin6_port;
  }
  return &reinterpret_cast<sockaddr_in*>(&place->storage)->sin_port;
}

// "127.0.0.1" or "[::1]".
std::string HostName(const SocketAddress& place) {
  char host[NI_MAXHOST] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&place.storage), place.size, host, sizeof(host),
              nullptr, 0, NI_NUMERICHOST);
  return place.storage.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : host;
}

// Whether a bind failed because the machine has no such address.
bool IsElsewhere(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
}

// Binds at every address; returns 0, or an error number and in `failed` the address.
int Bind(std::vector<SocketAddress> places, std::vector<BoundSocket>* sockets,
         std::string* failed) {
  sockets->clear();
  in_port_t port = *Port(&places.front());
  int elsewhere = 0;
  for (SocketAddress& place : places) {
    *failed = HostName(place);
    *Port(&place) = port;
    auto* const raw = reinterpret_cast<sockaddr*>(&place.storage);
    Fd bound(socket(place.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, off = 0;
    if (bound.ok()) {  // Else errno must stay.
      // As gRPC does: a dead server's connections do not block the port, and [::] includes IPv4's
      // 0.0.0.0. Options that a family does not support have no effect.
      setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      setsockopt(bound.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (!bound.ok() || bind(bound.get(), raw, place.size) != 0) {
      if (!IsElsewhere(errno)) return errno;
      elsewhere = errno;
      continue;
    }
    getsockname(bound.get(), raw, &place.size);
    port = *Port(&place);
    sockets->push_back({std::move(bound), *failed, ntohs(port)});
  }
  return sockets->empty() ? elsewhere : 0;
}

}  // namespace

bool IsUnix(const std::string& address) {
  return address.rfind(kUnixPrefix, 0) == 0 || address.rfind(kAbstractPrefix, 0) == 0;
}

std::string SocketPath(const std::string& address) {
  if (address.rfind(kUnixPrefix, 0) != 0) return "";
  std::string path = address.substr(sizeof(kUnixPrefix) - 1);
  if (path.rfind("//", 0) == 0) path = path.substr(2);
  return path;
}

Status CheckFree(const std::string& address) {
  const std::string path = SocketPath(address);
  if (path.empty()) return {};
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return {Code::kInvalidArgument,
            "The path of " + address + " is longer than the system allows for sockets (" +
                std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes); use a shorter path"};
  }
  if (path.find(',') != std::string::npos) {
    return {Code::kInvalidArgument, "The path of " + address +
                                        " has a comma, at which clients would split it; use "
                                        "another path"};
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return {Code::kInvalidArgument, path + " exists and is not a socket; choose another address"};
  }
  return CheckNoListener(address, path);
}

Status ResolveWithSystem(const std::string& host, const std::string& port,
                         std::vector<SocketAddress>* addresses) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) return {Code::kUnavailable, gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (; list != nullptr; list = list->ai_next) {
    SocketAddress place;
    std::memcpy(&place.storage, list->ai_addr, list->ai_addrlen);
    place.size = list->ai_addrlen;
    const bool known = std::any_of(addresses->begin(), addresses->end(), [&](const auto& other) {
      return other.size == place.size && !std::memcmp(&other.storage, &place.storage, place.size);
    });
    if (!known) addresses->push_back(place);
  }
  return {};
}

Status BindAll(const std::string& address, std::vector<BoundSocket>* sockets,
               const Resolve& resolve) {
  sockets->clear();
  std::string host, port;
  if (!SplitHostPort(address, &host, &port)) {
    return {Code::kInvalidArgument, "Cannot listen on " + address +
                                        ": it is not host:port, unix:/path or unix-abstract:name"};
  }
  const std::string problem = "Cannot listen on " + address + ": ";
  if (!IsPort(port)) return {Code::kInvalidArgument, problem + "invalid port " + port};
  std::vector<SocketAddress> places;
  const Status status = resolve(host, port, &places);
  if (!status.ok()) return {status.code, problem + status.message};
  if (places.empty()) return {Code::kUnavailable, problem + "the host has no address"};

  const bool any_port = *Port(&places.front()) == 0;
  std::string failed;
  int error = Bind(places, sockets, &failed);
  // A port that is free at the first address may be in use at another.
  for (int i = 1; any_port && error == EADDRINUSE && i < kPortAttempts; ++i) {
    error = Bind(places, sockets, &failed);
  }
  if (error == 0) return {};
  sockets->clear();
  if (error == EADDRINUSE) {
    return {Code::kUnavailable, problem + "the port is in use at " + failed};
  }
  if (IsElsewhere(error)) {
    return {Code::kUnavailable, problem + "not an address of this machine"};
  }
  return {Code::kUnavailable, problem + std::strerror(error) + " at " + failed};
}

}  // namespace seed_rl::transport
