#include "seed_rl/grpc/native/transport/hand_over.h"

#include <poll.h>
#include <pthread.h>

#include <utility>

namespace seed_rl::transport {
namespace {

// As many floods can be read at once without delaying other newcomers.
constexpr int kThreads = 4;

// Whether the peer is still there. If not, gRPC may log that, and so let peers fill the log.
bool IsConnected(int fd) {
  pollfd state = {fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) == 0;
}

}  // namespace

void HandOver::Start() {
  for (int i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), "seed_hand_over");
  }
}

void HandOver::Stop() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HandOver::Add(Acceptor* acceptor, int listener, Fd connection) {
  std::lock_guard<std::mutex> lock(mu_);
  if (stopping_) return;
  waiting_.push_back({acceptor, listener, std::move(connection)});
  changed_.notify_one();
}

void HandOver::Run() {
  while (true) {
    Connection next;
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (!IsConnected(next.fd.get())) continue;
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = next.listener;
    parameters.fd = next.fd.release();
    next.acceptor->HandleNewConnection(&parameters);
  }
}

}  // namespace seed_rl::transport
