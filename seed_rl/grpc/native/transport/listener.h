// Accepts the connections of a server and hands them to gRPC.
//
// gRPC 1.51 could accept them itself, but after running out of file descriptors it never does so
// again (CVE-2023-4785), and it would leave none to the rest of the process.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENER_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "seed_rl/grpc/native/transport/fd.h"
#include "seed_rl/grpc/native/transport/listening_sockets.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

class Listener {
 public:
  // `max_connections`: the number that must be possible at the same time. A TCP connection ends if
  // what was sent on it has not arrived, or its peer reads nothing, for `unsent_timeout`.
  Listener(int64_t max_connections, std::chrono::milliseconds unsent_timeout);
  ~Listener() { Stop(); }

  // Listens at all addresses or fails; `ports` gets an entry per address. Clients wait until Start.
  Status Listen(const std::vector<std::string>& addresses, std::vector<int>* ports);
  // Prepares a gRPC server for the connections. `tls` is for TCP.
  void AddTo(grpc::ServerBuilder* builder, const std::shared_ptr<grpc::ServerCredentials>& tls);
  // Accepts connections, once the gRPC server has started.
  void Start();
  // Stops listening. Open connections are not affected.
  void Stop();

 private:
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  // The loop of the thread.
  void Run();
  void Accept(const ListeningSocket& socket);
  // Refuses a connection if no descriptor is left, with the one in reserve.
  void Refuse(const ListeningSocket& socket);
  void Admit(const ListeningSocket& socket, Fd connection);

  const std::chrono::milliseconds unsent_timeout_;
  const Fd epoll_;
  const Fd stop_;  // An eventfd.
  Fd reserve_;     // Used only by the thread.
  ListeningSockets sockets_;
  Acceptor tcp_acceptor_;
  Acceptor unix_acceptor_;
  std::thread thread_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENER_H_
