// Reusable aligned memory, whose pages are faulted in only once.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_BUFFER_POOL_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_BUFFER_POOL_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

// Gives `tensor` memory of its own, aligned to kAlignment, and returns it.
char* Allocate(Tensor* tensor, size_t bytes);

// Buffers of one size; thread-safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // Keeps at most `max_free` unused buffers.
  BufferPool(size_t bytes, size_t max_free);

  // The buffer returns to the pool with its last reference.
  std::shared_ptr<char> Acquire();

 private:
  struct State {
    const size_t max_free;
    std::mutex mu;
    std::vector<char*> free;  // Guarded by mu.

    explicit State(size_t max_free) : max_free(max_free) {}
    ~State();
  };

  const size_t bytes_;
  const std::shared_ptr<State> state_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BUFFER_POOL_H_
