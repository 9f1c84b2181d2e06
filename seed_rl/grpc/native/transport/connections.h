// The connections of a server: which are open, whose they are, and which must go.
//
// gRPC owns the sockets. This keeps a duplicate of each descriptor, by which it learns that gRPC
// has shut the socket down (EPOLLHUP), and can end a connection from outside gRPC.
//
// A connection without a stream of calls is a stranger's: it may still have to show a token. Such
// a connection may send little, which is looked at when something arrives from it, and it has
// to go if there are too many connections. One with a stream is looked at ten times per second: it
// may send what its calls take, and have little more under way. (gRPC 1.51 keeps what has arrived
// of a message, and compares its size with the limit only once it is complete.)
//
// The peers of Unix sockets have no names, so RPCs cannot be traced to their connections. For them
// only the total number is limited; the permissions of the socket's file are the guard.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "seed_rl/grpc/native/transport/fd.h"

namespace seed_rl::transport {

// Lets `burst` events pass at once, and `rate` per second in the long run.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;
  TokenBucket(double burst, double rate) : burst_(burst), rate_(rate), tokens_(burst) {}
  // Takes `amount`; false if there was less, which is then owed.
  bool Take(double amount);
  // Takes `amount` or, if there is less, all; returns what was lacking.
  double TakeWhatIsThere(double amount);
  double tokens() const { return tokens_; }

 private:
  double burst_;
  double rate_;
  double tokens_;
  Clock::time_point filled_ = Clock::now();
};

// What fits into the memory of this machine, besides what is done there, of unfinished messages or
// of calls in work.
int64_t SharedBytes();

// Thread-safe.
class Connections {
 public:
  // What the messages of a connection's streams took on the network.
  struct Traffic {
    std::atomic<int64_t> bytes{0};     // At least.
    std::atomic<int64_t> overhead{0};  // Perhaps besides.
  };
  // Of no connection that is known.
  static constexpr uint64_t kUnknown = 0;

  // How often Check should be called.
  static constexpr std::chrono::milliseconds kCheckInterval{100};

  // `epoll` reports events of the connections, with their ids as data.
  Connections(int epoll, int64_t max_connections);
  // Of a connection's bytes, as many may belong to messages that are not complete. Before any Add.
  void set_max_unread_bytes(int64_t bytes) { max_unread_bytes_ = bytes; }

  // Remembers an accepted connection. If there are too many, ends the oldest without a stream.
  // False if the new one must go: all others have a stream, its peer has already gone, or has
  // another connection from the same port to another of our addresses (RPCs of both would be
  // taken for those of one).
  bool Add(int fd, bool is_unix);
  // Handles an event of a connection.
  void OnEvent(uint64_t id, uint32_t events);
  // Ends the oldest connection without a stream, if any; of those with and those without an RPC,
  // whichever there are more of.
  bool EndOldestStranger();

  // Finds the connection of an RPC by what gRPC calls its peer.
  uint64_t Find(const std::string& peer);
  // An RPC begins; false if the connection has begun too many. One that goes on is ended. EndRpc
  // must follow.
  bool BeginRpc(uint64_t id);
  void EndRpc(uint64_t id);
  // The peer has cancelled an RPC.
  void CancelRpc(uint64_t id);
  // A stream of calls begins; null if the connection has too many. The stream adds its messages to
  // the result. CloseStream must follow.
  std::shared_ptr<Traffic> OpenStream(uint64_t id);
  void CloseStream(uint64_t id);
  // Looks at connections: at all in turn, if there are many.
  void Check();

  int64_t size() const;
  // Forgets all, once gRPC has closed them.
  void Clear();

 private:
  struct Connection {
    explicit Connection(Fd fd, std::string peer);
    Fd fd;
    std::string peer;  // Empty for Unix sockets.
    int streams = 0;
    int open_rpcs = 0;                    // With the streams.
    std::list<uint64_t>* home = nullptr;  // The list that it is in; null for Unix sockets.
    std::list<uint64_t>::iterator place;  // In there.
    TokenBucket rpcs;
    TokenBucket cancellations;
    TokenBucket bytes;  // That a stranger may send.
    // That a stranger may send besides, because it may not yet know of the end of its last stream,
    // or the server not yet of the first.
    int64_t under_way;
    int64_t received = 0;
    // Received, but not of complete messages. Of a stranger, all that may be kept: gRPC keeps the
    // requests of RPCs that last, and the answers to a peer that does not read.
    int64_t unread = 0;
    TokenBucket::Clock::time_point charged = TokenBucket::Clock::now();
    std::shared_ptr<Traffic> messages = std::make_shared<Traffic>();
    bool IsUnix() const { return peer.empty(); }
  };

  // These require mu_.
  Connection* Get(uint64_t id);
  void Remove(uint64_t id);
  // Moves a TCP connection to the end of a list.
  static void Move(Connection* connection, std::list<uint64_t>* home);
  bool EndOldest();
  void Watch(uint64_t id, const Connection& connection);
  // Whether an older connection from this peer still exists; forgets it if not.
  bool HasPeer(const std::string& peer);
  // Updates `received` and `unread`; true if the peer has read all that was sent to it.
  bool CountBytes(Connection* connection);
  void SetUnread(Connection* connection, int64_t bytes);
  // The sum that the connection's unread bytes belong to.
  int64_t& UnreadSum(const Connection& connection);
  // Counts what a stranger has sent, and ends the connection if that is too much.
  void ChargeStranger(Connection* connection);
  // Of connections with or without streams, ends that with the most unread bytes, if there are any.
  bool EndLargest(bool with_streams);
  // Discards what has been received but not been read.
  static void Abort(const Connection& connection);

  const int epoll_;
  const int64_t max_connections_;
  const int64_t shared_bytes_;
  int64_t max_unread_bytes_ = int64_t{1} << 26;
  mutable std::mutex mu_;
  uint64_t last_id_ = 0;                               // Guarded by mu_.
  std::map<uint64_t, Connection> connections_;         // By id. Guarded by mu_.
  std::unordered_map<std::string, uint64_t> by_peer_;  // Guarded by mu_.
  // TCP connections without streams: those that have begun no RPC, oldest first. Guarded by mu_.
  std::list<uint64_t> strangers_;
  // Those that have begun an RPC, such as a health check; the longest silent first. Guarded by mu_.
  std::list<uint64_t> callers_;
  std::list<uint64_t> members_;  // Those with streams, next to be checked first. Guarded by mu_.
  // Sums over connections with and without streams: strangers must not cost members theirs.
  int64_t unread_of_members_ = 0;    // Guarded by mu_.
  int64_t unread_of_strangers_ = 0;  // Guarded by mu_.
  uint64_t next_to_check_ = 0;       // Of all, if it has no stream. Guarded by mu_.
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_
