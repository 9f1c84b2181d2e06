#include "seed_rl/grpc/native/transport/listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace seed_rl::transport {
namespace {

// New clients need a connection to get the error about too many streams.
int64_t Spare(int64_t max_connections) {
  return std::clamp<int64_t>(max_connections / 4, 64, 1024);
}
// Descriptors that connections leave to the rest of the process: checkpoints, logs.
constexpr int64_t kReservedDescriptors = 128;
// Connections accepted before other events have their turn.
constexpr int kAcceptBurst = 32;
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(20);

// The id of the stop event; other ids are indices of sockets.
constexpr uint64_t kStop = ~uint64_t{0};

int64_t OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int64_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Raises the limit of descriptors if necessary and allowed; says so if that is not enough.
void ReserveDescriptors(int64_t max_connections) {
  const int64_t connections = max_connections + Spare(max_connections);
  const int64_t in_use = OpenDescriptors() + kReservedDescriptors;
  const rlim_t needed = in_use + connections;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  std::fprintf(stderr,
               "seed_rl: max_connections=%lld needs %llu file descriptors (%lld for connections, "
               "%lld for the rest), but this process may only have %llu: further connections are "
               "refused. Raise the limit (ulimit -Hn) or lower max_connections.\n",
               static_cast<long long>(max_connections), static_cast<unsigned long long>(needed),
               static_cast<long long>(connections), static_cast<long long>(in_use),
               static_cast<unsigned long long>(limit.rlim_cur));
}

// Whether few descriptors are left. New ones are the lowest that are free.
bool IsAmongTheLast(int fd) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const int64_t allowed = limit.rlim_cur;
  return fd >= allowed - std::min(kReservedDescriptors, allowed / 4);
}

// Whether the peer is still connected. Some probes only connect, which gRPC would log.
bool IsConnected(int fd) {
  pollfd state = {fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) == 0 || (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

bool Watch(int epoll, int fd, uint64_t id) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

Fd OpenReserve() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Listener::Listener(int64_t max_connections, std::chrono::milliseconds unsent_timeout)
    : unsent_timeout_(unsent_timeout),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(OpenReserve()) {
  ReserveDescriptors(max_connections);
}

Status Listener::Listen(const std::vector<std::string>& addresses, std::vector<int>* ports) {
  ports->assign(addresses.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    Status status = sockets_.Add(addresses[i], &(*ports)[i]);
    if (!status.ok()) return status;
  }
  sockets_.CloseInForks();
  if (!epoll_.ok() || !stop_.ok()) return {Code::kUnavailable, "Too many open files"};
  bool watched = Watch(epoll_.get(), stop_.get(), kStop);
  for (size_t i = 0; i < sockets_.sockets().size() && watched; ++i) {
    watched = Watch(epoll_.get(), sockets_.sockets()[i].fd.get(), i);
  }
  if (watched) return {};
  return {Code::kUnavailable, std::string("Cannot wait for connections: ") + std::strerror(errno)};
}

void Listener::AddTo(grpc::ServerBuilder* builder,
                     const std::shared_ptr<grpc::ServerCredentials>& tls) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  tcp_acceptor_ = builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD, tls);
  unix_acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      Type::FROM_FD, grpc::InsecureServerCredentials());
}

void Listener::Start() {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "seed_accept");
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  sockets_.Close();
}

void Listener::Run() {
  epoll_event events[64];
  while (true) {
    const int count = epoll_wait(epoll_.get(), events, std::size(events), -1);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kStop) return;
      Accept(sockets_.sockets()[id]);
    }
  }
}

void Listener::Accept(const ListeningSocket& socket) {
  for (int i = 0; i < kAcceptBurst; ++i) {
    Fd connection(accept4(socket.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.ok()) {
      Admit(socket, std::move(connection));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      Refuse(socket);
      return;
    }
    // Other errors concern a single connection, closed before it was accepted.
  }
}

void Listener::Refuse(const ListeningSocket& socket) {
  if (reserve_.ok()) {
    reserve_.reset();
    Fd(accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
  } else {
    std::this_thread::sleep_for(kPauseWithoutDescriptors);
  }
  reserve_ = OpenReserve();
}

void Listener::Admit(const ListeningSocket& socket, Fd connection) {
  if (!socket.is_unix) {
    const int on = 1;
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // gRPC's pings do not notice a peer that never reads: they queue behind the unread data.
    const unsigned timeout = unsent_timeout_.count();
    setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
  }
  if (IsAmongTheLast(connection.get()) || !IsConnected(connection.get())) return;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = socket.fd.get();
  parameters.fd = connection.release();
  (socket.is_unix ? unix_acceptor_ : tcp_acceptor_)->HandleNewConnection(&parameters);
}

}  // namespace seed_rl::transport
