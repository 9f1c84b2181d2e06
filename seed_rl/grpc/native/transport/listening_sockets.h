// The sockets of a server's addresses.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENING_SOCKETS_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENING_SOCKETS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "seed_rl/grpc/native/transport/fd.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

struct ListeningSocket {
  Fd fd;
  bool is_unix = false;
};

// Removes the files of its Unix sockets when destroyed, if they are still its own.
class ListeningSockets {
 public:
  ListeningSockets() = default;
  ListeningSockets(const ListeningSockets&) = delete;
  ListeningSockets& operator=(const ListeningSockets&) = delete;
  ~ListeningSockets() { Close(); }

  // Listens at all places of an address. `port` is 0 for Unix sockets. kUnavailable if the address
  // is in use or not of this machine, kInvalidArgument if it is malformed.
  Status Add(const std::string& address, int* port);
  // From now on, processes that are forked without exec do not keep the addresses. No Add may
  // follow. In a child, the object must not be destroyed.
  void CloseInForks();
  void Close();

  const std::vector<ListeningSocket>& sockets() const { return sockets_; }

 private:
  struct SocketFile {
    std::string path;
    dev_t device;
    ino_t inode;
  };

  // Sockets to close in forks, and the handlers of fork(2), which lock them meanwhile.
  struct Registry;

  Status AddUnix(const std::string& address);

  std::vector<ListeningSocket> sockets_;
  std::vector<SocketFile> files_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_LISTENING_SOCKETS_H_
