#include "seed_rl/grpc/native/transport/listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/tcp.h>
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

// Newcomers need a connection before they can be told that there are too many streams; a NumPy
// client has two for a moment.
int64_t Spare(int64_t max_connections) {
  return std::clamp<int64_t>(max_connections / 4, 64, 1024);
}
// Descriptors that are left to the rest of the process, if there are few.
constexpr int64_t kReservedDescriptors = 128;
constexpr int64_t kDescriptorsPerConnection = 2;  // gRPC's and the duplicate.
// Connections accepted before other events have their turn.
constexpr int kAcceptBurst = 32;
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(20);

// Ids of events; connections have ids below.
constexpr uint64_t kFirstSocket = uint64_t{1} << 62;
constexpr uint64_t kStop = uint64_t{1} << 63;

int64_t OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int64_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Raises the limit of descriptors if necessary and allowed. Returns how many connections can be
// open; says so if it is less than wanted.
int64_t ReserveDescriptors(int64_t max_connections) {
  const int64_t connections = max_connections + Spare(max_connections);
  const int64_t in_use = OpenDescriptors() + kReservedDescriptors;
  const rlim_t needed = in_use + kDescriptorsPerConnection * connections;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return connections;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return connections;
  const int64_t possible =
      std::max<int64_t>(8, (int64_t(limit.rlim_cur) - in_use) / kDescriptorsPerConnection);
  std::fprintf(stderr,
               "seed_rl: max_connections=%lld needs %llu file descriptors (%lld for each of %lld "
               "connections, %lld for the rest), but this process may only have %llu: at most %lld "
               "connections are possible. Raise the limit (ulimit -Hn) or lower max_connections.\n",
               static_cast<long long>(max_connections), static_cast<unsigned long long>(needed),
               static_cast<long long>(kDescriptorsPerConnection),
               static_cast<long long>(connections), static_cast<long long>(in_use),
               static_cast<unsigned long long>(limit.rlim_cur), static_cast<long long>(possible));
  return possible;
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
      reserve_(OpenReserve()),
      connections_(epoll_.get(), ReserveDescriptors(max_connections)) {}

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
    watched = Watch(epoll_.get(), sockets_.sockets()[i].fd.get(), kFirstSocket + i);
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
  hand_over_.Start();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "seed_accept");
}

void Listener::Stop() {
  hand_over_.Stop();  // First: the thread ends the floods that these threads may be reading.
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  sockets_.Close();
}

void Listener::Run() {
  using Clock = std::chrono::steady_clock;
  epoll_event events[64];
  Clock::time_point checked = Clock::now();
  while (true) {
    const int count =
        epoll_wait(epoll_.get(), events, std::size(events),
                   connections_.size() == 0 ? -1 : Connections::kCheckInterval.count());
    if (Clock::now() - checked >= Connections::kCheckInterval) {
      connections_.Check();
      checked = Clock::now();
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kStop) return;
      if (id >= kFirstSocket) {
        Accept(sockets_.sockets()[id - kFirstSocket]);
      } else {
        connections_.OnEvent(id, events[i].events);
      }
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
    // Others concern one connection, which has gone before it was accepted.
  }
}

void Listener::Refuse(const ListeningSocket& socket) {
  connections_.EndOldestStranger();
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
    // gRPC's pings do not notice a peer that never reads: they wait behind what it does not take.
    const unsigned timeout = unsent_timeout_.count();
    setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
  }
  if (!connections_.Add(connection.get(), socket.is_unix)) return;
  hand_over_.Add((socket.is_unix ? unix_acceptor_ : tcp_acceptor_).get(), socket.fd.get(),
                 std::move(connection));
}

}  // namespace seed_rl::transport
