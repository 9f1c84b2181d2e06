#include "seed_rl/grpc/native/transport/addresses.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace seed_rl::transport {
namespace {

constexpr char kUnixPrefix[] = "unix:";

// The path of a Unix socket that is a file; empty for others.
std::string SocketPath(const std::string& address) {
  if (address.rfind(kUnixPrefix, 0) != 0) return "";
  std::string path = address.substr(sizeof(kUnixPrefix) - 1);
  if (path.rfind("//", 0) == 0) path = path.substr(2);
  return path;
}

bool SomebodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  // EAGAIN: it listens, but its backlog is full.
  const bool listens = result == 0 || errno == EAGAIN;
  close(fd);
  return listens;
}

}  // namespace

bool IsUnix(const std::string& address) { return address.rfind("unix", 0) == 0; }

Status CheckFree(const std::string& address) {
  const std::string path = SocketPath(address);
  if (path.empty()) return {};
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return {Code::kInvalidArgument,
            "The path of " + address + " is longer than the system allows for sockets (" +
                std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes); use a shorter one"};
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return {Code::kInvalidArgument, path + " exists and is no socket; choose another address"};
  }
  if (SomebodyListens(path)) {
    return {Code::kUnavailable,
            "Another server is listening on " + address + "; stop it or choose another address"};
  }
  return {};
}

}  // namespace seed_rl::transport
