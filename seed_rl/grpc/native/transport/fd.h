// A file descriptor that closes itself.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_FD_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_FD_H_

#include <unistd.h>

#include <utility>

namespace seed_rl::transport {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) close(release());
  }

 private:
  int fd_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_FD_H_
