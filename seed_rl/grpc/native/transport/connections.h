// The connections of a server: which are open, whose they are, and which must go.
//
// gRPC owns the sockets. This keeps a duplicate of each descriptor, by which it learns that gRPC
// has shut the socket down (EPOLLHUP), and can end a connection from outside gRPC.
//
// A connection without a stream of calls is a stranger's: it may still have to show a token. Such
// a connection may send little, which is looked at whenever something arrives from it, and it has
// to go if there are too many connections. Once it has a stream, it is left alone.
//
// The peers of Unix sockets have no names, so RPCs cannot be traced to their connections. For them
// only the total number is limited; the permissions of the socket's file are the guard.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_

#include <chrono>
#include <cstdint>
#include <list>
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
  // Takes `amount`; false if there was less.
  bool Take(double amount);

 private:
  double burst_;
  double rate_;
  double tokens_;
  Clock::time_point filled_ = Clock::now();
};

// Thread-safe.
class Connections {
 public:
  // Of no connection that is known.
  static constexpr uint64_t kUnknown = 0;

  // `epoll` reports events of the connections, with their ids as data.
  Connections(int epoll, int64_t max_connections)
      : epoll_(epoll), max_connections_(max_connections) {}

  // Remembers an accepted connection. If there are too many, ends the oldest without a stream;
  // false if all have one: then the new one must go.
  bool Add(int fd);
  // Handles an event of a connection.
  void OnEvent(uint64_t id, uint32_t events);
  // Ends the oldest connection without a stream, if any.
  bool EndOldestStranger();

  // Finds the connection of an RPC by what gRPC calls its peer.
  uint64_t Find(const std::string& peer);
  // An RPC begins; false if the connection has begun too many and was ended.
  bool BeginRpc(uint64_t id);
  // The peer has cancelled an RPC.
  void CancelRpc(uint64_t id);
  // A stream of calls begins; false if the connection has too many. CloseStream must follow.
  bool OpenStream(uint64_t id);
  // `bytes`: about what its messages took on the network, which is not held against the peer.
  void CloseStream(uint64_t id, uint64_t bytes);

  int64_t size() const;

 private:
  struct Connection {
    explicit Connection(Fd fd, std::string peer);
    Fd fd;
    std::string peer;  // Empty for Unix sockets.
    int streams = 0;
    std::list<uint64_t>::iterator stranger;  // Valid if it is one.
    TokenBucket rpcs;
    TokenBucket cancellations;
    TokenBucket bytes;
    uint64_t bytes_seen = 0;
    bool IsStranger() const { return !peer.empty() && streams == 0; }
  };

  // These require mu_.
  Connection* Get(uint64_t id);
  void Remove(uint64_t id);
  void AddStranger(uint64_t id, Connection* connection);
  bool EndOldest();
  void Watch(uint64_t id, const Connection& connection);
  // Ends a connection that has sent too much.
  static void CountBytes(Connection* connection);
  // Discards what has been received but not been read.
  static void Abort(const Connection& connection);

  const int epoll_;
  const int64_t max_connections_;
  mutable std::mutex mu_;
  uint64_t last_id_ = 0;                                  // Guarded by mu_.
  std::unordered_map<uint64_t, Connection> connections_;  // By id. Guarded by mu_.
  std::unordered_map<std::string, uint64_t> by_peer_;     // Guarded by mu_.
  std::list<uint64_t> strangers_;                         // Oldest first. Guarded by mu_.
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_CONNECTIONS_H_
