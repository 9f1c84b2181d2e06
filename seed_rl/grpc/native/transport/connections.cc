#include "seed_rl/grpc/native/transport/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace seed_rl::transport {
namespace {

// Limits of a connection. For comparison: nginx answers 1,000 requests on a connection, then closes
// it (keepalive_requests); Envoy closes one that has begun 500 and cancelled more than half of them
// within a second (overload.premature_reset_total_stream_count). Ours need two RPCs each.
constexpr double kRpcBurst = 1000;
constexpr double kRpcsPerSecond = 100;
constexpr double kCancellationBurst = 50;
constexpr double kCancellationsPerSecond = 5;
// What a connection without a stream may send: handshakes, health checks, requests for statistics.
constexpr double kStrangerBytes = 64 << 10;
constexpr double kStrangerBytesPerSecond = 32 << 10;
// What gRPC may receive on a stream of calls before the server hears of it, if it is busy: HTTP/2's
// window, see builder.cc. Whoever may send 640 KiB can open and reset 23,000 streams, which take 3
// s and 350 MiB.
constexpr int64_t kUnheardBytes = 64 << 10;
// What all strangers may have sent that gRPC may keep; in pieces of one byte, it takes five times
// the memory. A newcomer sends 64 KiB before gRPC knows how fast the network is.
constexpr int64_t kUnreadOfStrangers = 40 << 20;
constexpr int kMaxStreamsPerConnection = 8;
// Connections with streams, and without, that are looked at in one Check: about a millisecond.
constexpr size_t kMaxChecks = 512;
// Besides EPOLLHUP and EPOLLERR, which are always reported. gRPC may take a while to see that a
// peer has gone, if many come and go.
constexpr uint32_t kStrangerEvents = uint32_t{EPOLLIN} | EPOLLRDHUP | EPOLLET;
constexpr uint32_t kGone = uint32_t{EPOLLHUP} | EPOLLERR | EPOLLRDHUP;

// "ipv4:1.2.3.4:5" or "ipv6:[::1]:5"; empty if the peer has gone.
std::string PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return "ipv4:" + std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (storage.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  const std::string port = ":" + std::to_string(ntohs(v6.sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return "ipv4:" + std::string(text) + port;
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  const std::string scope = v6.sin6_scope_id ? "%" + std::to_string(v6.sin6_scope_id) : "";
  return "ipv6:[" + std::string(text) + scope + "]" + port;
}

// gRPC writes "ipv6:[::1]:5" as a URI: "ipv6:%5B::1%5D:5".
std::string DecodePercent(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

int64_t SharedBytes() {
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::max(int64_t{1} << 30, memory / 8);
}

bool TokenBucket::Take(double amount) {
  const Clock::time_point now = Clock::now();
  tokens_ += std::chrono::duration<double>(now - filled_).count() * rate_;
  tokens_ = std::min(tokens_, burst_) - amount;
  filled_ = now;
  return tokens_ >= 0;
}

double TokenBucket::TakeWhatIsThere(double amount) {
  if (Take(amount)) return 0;
  return -std::exchange(tokens_, 0);
}

Connections::Connection::Connection(Fd fd, std::string peer)
    : fd(std::move(fd)),
      peer(std::move(peer)),
      rpcs(kRpcBurst, kRpcsPerSecond),
      cancellations(kCancellationBurst, kCancellationsPerSecond),
      bytes(kStrangerBytes, kStrangerBytesPerSecond),
      under_way(kUnheardBytes) {}

Connections::Connections(int epoll, int64_t max_connections)
    : epoll_(epoll), max_connections_(max_connections), shared_bytes_(SharedBytes()) {}

bool Connections::Add(int fd, bool is_unix) {
  std::string peer = is_unix ? "" : PeerOf(fd);
  if (!is_unix && peer.empty()) return false;
  Fd duplicate(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!duplicate.ok()) return false;
  std::lock_guard<std::mutex> lock(mu_);
  if (HasPeer(peer)) return false;
  if (static_cast<int64_t>(connections_.size()) >= max_connections_ && !EndOldest()) return false;
  const uint64_t id = ++last_id_;
  epoll_event event = {};
  event.events = peer.empty() ? 0 : kStrangerEvents;
  event.data.u64 = id;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, duplicate.get(), &event) != 0) return false;
  Connection& connection =
      connections_.try_emplace(id, std::move(duplicate), std::move(peer)).first->second;
  if (connection.peer.empty()) return true;
  by_peer_[connection.peer] = id;
  connection.home = &strangers_;
  connection.place = strangers_.insert(strangers_.end(), id);
  return true;
}

void Connections::OnEvent(uint64_t id, uint32_t events) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection == nullptr) return;
  if (events & kGone) {
    Remove(id);
    return;
  }
  if (!connection->IsUnix() && connection->streams == 0) ChargeStranger(connection);
}

bool Connections::EndOldestStranger() {
  std::lock_guard<std::mutex> lock(mu_);
  return EndOldest();
}

uint64_t Connections::Find(const std::string& peer) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found =
      by_peer_.find(peer.find('%') == std::string::npos ? peer : DecodePercent(peer));
  return found == by_peer_.end() ? kUnknown : found->second;
}

bool Connections::BeginRpc(uint64_t id) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection == nullptr) return true;
  if (connection->streams > 0) {
    CountBytes(connection);  // It may have been the only one.
  } else {
    ChargeStranger(connection);  // What it sends from now on may be kept.
  }
  ++connection->open_rpcs;
  if (connection->home != &members_) Move(connection, &callers_);
  if (connection->rpcs.Take(1)) return true;
  if (connection->rpcs.tokens() < -kRpcBurst) Abort(*connection);
  return false;
}

void Connections::EndRpc(uint64_t id) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection == nullptr) return;
  if (connection->streams > 0) {
    CountBytes(connection);  // While it is not the only one.
  } else {
    ChargeStranger(connection);
  }
  --connection->open_rpcs;
}

void Connections::CancelRpc(uint64_t id) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection != nullptr && !connection->cancellations.Take(1)) Abort(*connection);
}

std::shared_ptr<Connections::Traffic> Connections::OpenStream(uint64_t id) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection == nullptr) return std::make_shared<Traffic>();
  if (connection->streams >= kMaxStreamsPerConnection) return nullptr;
  const int64_t unread = connection->unread;
  SetUnread(connection, 0);
  ++connection->streams;
  SetUnread(connection, unread);
  if (connection->streams == 1) {
    Move(connection, &members_);
    Watch(id, *connection);
  }
  return connection->messages;
}

void Connections::CloseStream(uint64_t id) {
  std::lock_guard<std::mutex> lock(mu_);
  Connection* const connection = Get(id);
  if (connection == nullptr) return;
  CountBytes(connection);
  const int64_t unread = connection->unread;
  SetUnread(connection, 0);
  if (--connection->streams > 0 || connection->open_rpcs > 0) SetUnread(connection, unread);
  if (connection->streams > 0) return;
  Move(connection, &callers_);
  Watch(id, *connection);
  connection->charged = TokenBucket::Clock::now();
  connection->under_way = max_unread_bytes_;
}

void Connections::Check() {
  std::lock_guard<std::mutex> lock(mu_);
  for (size_t i = std::min(members_.size(), kMaxChecks); i > 0; --i) {
    Connection* const connection = Get(members_.front());
    members_.splice(members_.end(), members_, members_.begin());
    CountBytes(connection);
    if (connection->unread > max_unread_bytes_) Abort(*connection);
  }
  // Strangers, too: the kernel reports not all that arrives while gRPC reads.
  auto next = connections_.lower_bound(next_to_check_);
  for (size_t i = std::min(connections_.size(), kMaxChecks); i > 0; --i) {
    if (next == connections_.end()) next = connections_.begin();
    Connection* const connection = &next->second;
    if (connection->streams == 0 && !connection->IsUnix()) ChargeStranger(connection);
    next_to_check_ = ++next == connections_.end() ? 0 : next->first;
  }
  if (unread_of_members_ > shared_bytes_) EndLargest(/*with_streams=*/true);
}

int64_t Connections::size() const {
  std::lock_guard<std::mutex> lock(mu_);
  return connections_.size();
}

void Connections::Clear() {
  std::lock_guard<std::mutex> lock(mu_);
  while (!connections_.empty()) Remove(connections_.begin()->first);
}

Connections::Connection* Connections::Get(uint64_t id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

void Connections::Remove(uint64_t id) {
  const auto found = connections_.find(id);
  Connection& connection = found->second;
  SetUnread(&connection, 0);
  if (connection.home != nullptr) connection.home->erase(connection.place);
  const auto named = by_peer_.find(connection.peer);
  // The address may have been used again.
  if (named != by_peer_.end() && named->second == id) by_peer_.erase(named);
  // gRPC has another descriptor of the socket, so that closing this one would not end the watch.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.fd.get(), nullptr);
  connections_.erase(found);
}

void Connections::Move(Connection* connection, std::list<uint64_t>* home) {
  if (connection->home == nullptr) return;
  home->splice(home->end(), *connection->home, connection->place);
  connection->home = home;
}

bool Connections::EndOldest() {
  const std::list<uint64_t>& crowd = callers_.size() > strangers_.size() ? callers_ : strangers_;
  if (crowd.empty()) return false;
  const uint64_t id = crowd.front();
  Abort(*Get(id));
  Remove(id);
  return true;
}

void Connections::Watch(uint64_t id, const Connection& connection) {
  epoll_event event = {};
  event.events = connection.streams > 0 ? 0 : kStrangerEvents;
  event.data.u64 = id;
  // A stranger that is not watched could send without limit.
  if (epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd.get(), &event) != 0) Abort(connection);
}

bool Connections::HasPeer(const std::string& peer) {
  const auto named = by_peer_.find(peer);
  if (named == by_peer_.end()) return false;
  pollfd state = {Get(named->second)->fd.get(), POLLRDHUP, 0};
  if (poll(&state, 1, 0) == 0) return true;
  Remove(named->second);
  return false;
}

bool Connections::CountBytes(Connection* connection) {
  // First, for a message may come in between.
  int64_t messages = connection->messages->bytes.exchange(0);
  const int64_t overhead = connection->messages->overhead.exchange(0);
  // A message proves that its RPC's last one is complete. Those of other RPCs may not be, and what
  // is conceded to one would pay for them.
  if (connection->open_rpcs <= 1) messages += overhead;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(connection->fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) {
    return true;
  }
  const int64_t received = info.tcpi_bytes_received;
  const int64_t news = std::max<int64_t>(0, received - connection->received);
  connection->received = received;
  SetUnread(connection, std::max<int64_t>(0, connection->unread + news - messages));
  return info.tcpi_notsent_bytes == 0;
}

int64_t& Connections::UnreadSum(const Connection& connection) {
  return connection.streams > 0 ? unread_of_members_ : unread_of_strangers_;
}

void Connections::SetUnread(Connection* connection, int64_t bytes) {
  UnreadSum(*connection) += bytes - connection->unread;
  connection->unread = bytes;
}

void Connections::ChargeStranger(Connection* connection) {
  const auto now = TokenBucket::Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(connection->charged, now);
  const int64_t before = connection->unread;
  const bool reads = CountBytes(connection);
  const int64_t news = std::max<int64_t>(0, connection->unread - before);
  connection->under_way -= std::ceil(connection->bytes.TakeWhatIsThere(news));
  if (connection->under_way < 0) {
    SetUnread(connection, 0);
    Abort(*connection);
    return;
  }
  if (reads && connection->open_rpcs == 0) {
    // Slowly, for the server may not yet have heard of an RPC.
    const int64_t handled = passed.count() * kStrangerBytesPerSecond;
    SetUnread(connection, std::max<int64_t>(0, connection->unread - handled));
  }
  while (unread_of_strangers_ > kUnreadOfStrangers && EndLargest(/*with_streams=*/false)) {
  }
}

bool Connections::EndLargest(bool with_streams) {
  Connection* largest = nullptr;
  for (auto& [id, connection] : connections_) {
    if (with_streams != (connection.streams > 0)) continue;
    if (largest == nullptr || connection.unread > largest->unread) largest = &connection;
  }
  if (largest == nullptr || largest->unread == 0) return false;
  SetUnread(largest, 0);
  Abort(*largest);
  return true;
}

void Connections::Abort(const Connection& connection) {
  // Unlike shutdown(2), this also discards what gRPC has not yet read.
  sockaddr nothing = {};
  nothing.sa_family = AF_UNSPEC;
  if (connection.peer.empty() || connect(connection.fd.get(), &nothing, sizeof(nothing)) != 0) {
    shutdown(connection.fd.get(), SHUT_RDWR);
  }
}

}  // namespace seed_rl::transport
