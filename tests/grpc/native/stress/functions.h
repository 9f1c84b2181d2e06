// What batchers and servers run under stress: each function adds one to its argument, or fails.

#ifndef TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_
#define TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"
#include "tests/grpc/native/batcher_fixture.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {

inline constexpr uint32_t kNumFunctions = 6;
inline constexpr int64_t kRowInts = 1500;  // 6,000 bytes: replies of several rows are borrowed.
inline constexpr int64_t kStaticRows = 4;

inline Tensor Ints(std::vector<int64_t> dims, int32_t value) {
  return Filled(DType::kInt32, std::move(dims), value);
}

// Adds one to all elements.
inline std::vector<Tensor> AddOne(const std::vector<Tensor>& arguments) {
  Tensor result = Ints(arguments[0].dims, 0);
  auto* out = reinterpret_cast<int32_t*>(const_cast<char*>(result.data));
  const auto* in = reinterpret_cast<const int32_t*>(arguments[0].data);
  for (size_t i = 0; i < result.bytes / sizeof(int32_t); ++i) out[i] = in[i] + 1;
  return {result};
}

// Checks what has come back from a function for this value.
inline void CheckAnswer(const TensorView& view, int32_t value) {
  std::vector<int32_t> elements(view.elements);
  Cursor(view.payload).Read(reinterpret_cast<char*>(elements.data()), view.bytes);
  for (const int32_t element : elements) CHECK(element == value + 1);
}

class QuickFunction : public Function {
 public:
  void Start(std::vector<Tensor> arguments, Done done) override { done({}, AddOne(arguments)); }
  void Cancel() override {}
};

// Fails if any row is odd; mostly quick, sometimes slow.
class FailingFunction : public Function {
 public:
  void Start(std::vector<Tensor> arguments, Done done) override {
    const auto* in = reinterpret_cast<const int32_t*>(arguments[0].data);
    for (size_t i = 0; i < arguments[0].bytes / sizeof(int32_t); ++i) {
      if (in[i] % 2 != 0) return done({Code::kFailedPrecondition, "odd"}, {});
    }
    done({}, AddOne(arguments));
  }
  void Cancel() override {}
};

// Answers from another thread.
class SlowFunction : public Function {
 public:
  ~SlowFunction() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Start(std::vector<Tensor> arguments, Done done) override {
    std::lock_guard<std::mutex> lock(mu_);
    threads_.emplace_back([arguments = std::move(arguments), done = std::move(done)] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      done({}, AddOne(arguments));
    });
  }
  void Cancel() override {}

 private:
  std::mutex mu_;
  std::vector<std::thread> threads_;  // Guarded by mu_.
};

// Ends only when it is cancelled.
class NeverFunction : public Function {
 public:
  void Start(std::vector<Tensor> arguments, Done done) override {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!cancelled_) {
        waiting_.push_back(std::move(done));
        return;
      }
    }
    done({Code::kCancelled, "cancelled"}, {});
  }
  void Cancel() override {
    std::vector<Done> waiting;
    {
      std::lock_guard<std::mutex> lock(mu_);
      cancelled_ = true;
      waiting.swap(waiting_);
    }
    for (const Done& done : waiting) done({Code::kCancelled, "cancelled"}, {});
  }

 private:
  std::mutex mu_;
  bool cancelled_ = false;     // Guarded by mu_.
  std::vector<Done> waiting_;  // Guarded by mu_.
};

template <typename F>
Binding Bind(const std::string& name, int64_t batch, int functions) {
  Binding binding;
  binding.name = name;
  binding.batch = batch;
  Spec spec;
  spec.dtype = DType::kInt32;
  if (batch != kUnbatched) spec.dims.push_back(batch == kDynamicBatch ? -1 : batch);
  spec.dims.push_back(kRowInts);
  binding.arguments = {spec};
  binding.num_results = 1;
  binding.max_in_flight = 2;
  for (int i = 0; i < functions; ++i) binding.functions.push_back(std::make_unique<F>());
  return binding;
}

// All functions. They answer at once, from another thread, or never.
inline std::vector<Binding> AllBindings() {
  std::vector<Binding> bindings;
  bindings.push_back(Bind<QuickFunction>("quick", kDynamicBatch, 1));
  bindings.push_back(Bind<SlowFunction>("slow", kDynamicBatch, 2));
  bindings.push_back(Bind<QuickFunction>("static", kStaticRows, 1));
  bindings.push_back(Bind<QuickFunction>("single", kUnbatched, 1));
  bindings.push_back(Bind<FailingFunction>("failing", kDynamicBatch, 1));
  bindings.back().isolate_errors = true;
  bindings.push_back(Bind<NeverFunction>("never", kDynamicBatch, 1));
  return bindings;
}

void StressBatchers(int rounds);

}  // namespace seed_rl::transport

#endif  // TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_
