// Hands accepted connections to gRPC, on threads of its own.
//
// gRPC starts to read in the thread that hands it a connection, and goes on there as long as more
// arrives. A peer that floods so holds that thread, until Connections ends it; it must not be the
// thread that accepts others and ends floods.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_HAND_OVER_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_HAND_OVER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "seed_rl/grpc/native/transport/fd.h"

namespace seed_rl::transport {

// Thread-safe.
class HandOver {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  ~HandOver() { Stop(); }
  void Start();
  // Closes the connections that wait. Returns once gRPC stops reading in the threads.
  void Stop();
  // `listener` is the socket by which the connection came.
  void Add(Acceptor* acceptor, int listener, Fd connection);

 private:
  struct Connection {
    Acceptor* acceptor = nullptr;
    int listener = -1;
    Fd fd;
  };

  // The loop of a thread.
  void Run();

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;           // Guarded by mu_.
  std::deque<Connection> waiting_;  // Guarded by mu_.
  std::vector<std::thread> threads_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_HAND_OVER_H_
