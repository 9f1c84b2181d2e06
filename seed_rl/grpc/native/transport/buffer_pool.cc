#include "seed_rl/grpc/native/transport/buffer_pool.h"

#include <cstdlib>
#include <new>

namespace seed_rl::transport {
namespace {

char* NewAligned(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded > 0 ? rounded : kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

}  // namespace

char* Allocate(Tensor* tensor, size_t bytes) {
  char* const memory = NewAligned(bytes);
  tensor->data = memory;
  tensor->bytes = bytes;
  tensor->owner.reset(memory, [](char* memory) { std::free(memory); });
  return memory;
}

BufferPool::BufferPool(size_t bytes, size_t max_free)
    : bytes_(bytes), state_(std::make_shared<State>(max_free)) {}

BufferPool::State::~State() {
  for (char* memory : free) std::free(memory);
}

std::shared_ptr<char> BufferPool::Acquire() {
  char* memory = nullptr;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    if (!state_->free.empty()) {
      memory = state_->free.back();
      state_->free.pop_back();
    }
  }
  if (memory == nullptr) memory = NewAligned(bytes_);
  return {memory, [state = state_](char* memory) {
            {
              std::lock_guard<std::mutex> lock(state->mu);
              if (state->free.size() < state->max_free) {
                state->free.push_back(memory);
                return;
              }
            }
            std::free(memory);
          }};
}

}  // namespace seed_rl::transport
