#include "seed_rl/grpc/native/transport/listening_sockets.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "seed_rl/grpc/native/transport/addresses.h"

namespace seed_rl::transport {
namespace {

// For accept4, which must not wait if the connection was closed in the meantime.
constexpr int kSocketType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
// Another server holds its folder for microseconds; a lock held by an unrelated process must not
// block startup.
constexpr int kLockAttempts = 100;
constexpr std::chrono::milliseconds kLockPause(10);

// The address of a socket with a file, or of an abstract one if `path` is empty.
bool UnixAddress(const std::string& address, const std::string& path, sockaddr_un* result,
                 socklen_t* size) {
  *result = {};
  result->sun_family = AF_UNIX;
  // An abstract name begins with a zero byte and extends to the end of the address.
  const bool abstract = path.empty();
  const std::string name = abstract ? '\0' + address.substr(address.find(':') + 1) : path;
  if (name.size() + (abstract ? 0 : 1) > sizeof(result->sun_path)) return false;
  std::memcpy(result->sun_path, name.data(), name.size());
  *size = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1);
  return true;
}

// Locks the folder of a socket's file, if the file system can. Until a server listens, its file
// looks like a dead server's: another that starts at the same moment would replace it, and both
// would believe that they listen there.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : folder_(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int i = 0; i < kLockAttempts && flock(folder_.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK) return;
      std::this_thread::sleep_for(kLockPause);
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // Explicitly: a child that another thread forked meanwhile would keep the lock.
  ~FolderLock() { flock(folder_.get(), LOCK_UN); }

 private:
  static std::string FolderOf(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
  }

  const Fd folder_;
};

}  // namespace

struct ListeningSockets::Registry {
  std::mutex mu;
  std::set<ListeningSockets*> all;  // Guarded by mu.

  static Registry& Get() {
    static Registry* const registry = [] {
      pthread_atfork([] { Get().mu.lock(); }, [] { Get().mu.unlock(); }, OnChild);
      return new Registry;
    }();
    return *registry;
  }

  static void OnChild() {
    // Frees no memory: the fork may have interrupted the allocator in another thread.
    for (ListeningSockets* const sockets : Get().all) {
      for (ListeningSocket& socket : sockets->sockets_) socket.fd.reset();
    }
    Get().mu.unlock();
  }
};

Status ListeningSockets::Add(const std::string& address, int* port) {
  *port = 0;
  if (IsUnix(address)) return AddUnix(address);
  std::vector<BoundSocket> bound;
  const Status status = BindAll(address, &bound);
  if (!status.ok()) return status;
  for (BoundSocket& socket : bound) {
    const int flags = fcntl(socket.fd.get(), F_GETFL);
    if (fcntl(socket.fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
        listen(socket.fd.get(), SOMAXCONN) != 0) {
      const std::string reason = errno == EADDRINUSE ? "the port is in use" : std::strerror(errno);
      return {Code::kUnavailable,
              "Cannot listen on " + address + ": " + reason + " at " + socket.host};
    }
    *port = socket.port;
    sockets_.push_back({std::move(socket.fd), false});
  }
  return {};
}

Status ListeningSockets::AddUnix(const std::string& address) {
  const std::string path = SocketPath(address);
  std::optional<FolderLock> lock;
  if (!path.empty()) lock.emplace(path);
  Status status = CheckFree(address);
  if (!status.ok()) return status;
  sockaddr_un place;
  socklen_t size;
  if (!UnixAddress(address, path, &place, &size)) {
    return {Code::kInvalidArgument, "The name of " + address + " is too long"};
  }
  if (!path.empty()) unlink(path.c_str());  // It is a dead server's, as CheckFree has found.
  Fd fd(socket(AF_UNIX, kSocketType, 0));
  struct stat info = {};
  if (!fd.ok() || bind(fd.get(), reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      (!path.empty() && lstat(path.c_str(), &info) != 0) || listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return {Code::kUnavailable,
              "Another server is listening on " + address + "; stop it or choose another address"};
    }
    return {Code::kUnavailable, "Cannot listen on " + address + ": " + std::strerror(error)};
  }
  if (!path.empty()) files_.push_back({path, info.st_dev, info.st_ino});
  sockets_.push_back({std::move(fd), true});
  return {};
}

void ListeningSockets::CloseInForks() {
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.all.insert(this);
}

void ListeningSockets::Close() {
  {
    Registry& registry = Registry::Get();
    std::lock_guard<std::mutex> lock(registry.mu);
    registry.all.erase(this);
  }
  for (const SocketFile& file : files_) {
    struct stat info;
    if (lstat(file.path.c_str(), &info) == 0 && info.st_dev == file.device &&
        info.st_ino == file.inode) {
      unlink(file.path.c_str());
    }
  }
  files_.clear();
  sockets_.clear();
}

}  // namespace seed_rl::transport
