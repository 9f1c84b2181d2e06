// A batcher that runs C++ functions, and what its tests hand to it.

#ifndef TESTS_GRPC_NATIVE_BATCHER_FIXTURE_H_
#define TESTS_GRPC_NATIVE_BATCHER_FIXTURE_H_

#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/batcher.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {

inline constexpr size_t kMiB = 1 << 20;

// A tensor of one value.
template <typename T>
Tensor Filled(DType dtype, std::vector<int64_t> dims, T value) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.dims = std::move(dims);
  size_t elements = 1;
  for (const int64_t dim : tensor.dims) elements *= dim;
  tensor.bytes = elements * sizeof(T);
  std::shared_ptr<T[]> data(new T[elements]);
  std::fill_n(data.get(), elements, value);
  tensor.data = reinterpret_cast<const char*>(data.get());
  tensor.owner = data;
  return tensor;
}

inline Tensor Bytes(std::vector<int64_t> dims, char value) {
  return Filled(DType::kUint8, std::move(dims), value);
}

// Runs a C++ function.
class Local : public Function {
 public:
  using Body = std::function<Status(const std::vector<Tensor>& arguments, Tensor* result)>;
  explicit Local(Body body) : body_(std::move(body)) {}

  void Start(std::vector<Tensor> arguments, Done done) override {
    Tensor result;
    const Status status = body_(arguments, &result);
    std::vector<Tensor> results;
    if (status.ok()) results.push_back(std::move(result));
    done(status, std::move(results));
  }
  void Cancel() override {}

 private:
  const Body body_;
};

// Keeps the answers it gets.
class Answers : public Caller {
 public:
  void Send(grpc::ByteBuffer reply, size_t) override {
    std::lock_guard<std::mutex> lock(mu_);
    replies_.push_back(std::move(reply));
    arrived_.notify_all();
  }
  void Wait(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    arrived_.wait(lock, [&] { return replies_.size() >= count; });
  }
  // The number of answers by error code.
  std::map<int, int> Codes() {
    std::lock_guard<std::mutex> lock(mu_);
    std::map<int, int> codes;
    for (const grpc::ByteBuffer& reply : replies_) {
      Frame frame;
      CHECK(frame.Parse(reply).ok());
      ++codes[frame.kind() == Kind::kReply ? 0 : frame.error_code()];
    }
    return codes;
  }

 private:
  std::mutex mu_;
  std::condition_variable arrived_;
  std::vector<grpc::ByteBuffer> replies_;  // Guarded by mu_.
};

// A running batcher of one function with a row of `row_bytes` bytes, or of one string if that is 0.
class Fixture {
 public:
  Fixture(Local::Body body, int64_t row_bytes, bool isolate_errors = false)
      : batcher_(Bind(std::move(body), row_bytes, isolate_errors), 1024, 0),
        answers(std::make_shared<Answers>()) {
    batcher_.Start();
  }

  void Add(const Tensor& argument) {
    FrameWriter writer(Kind::kCall, 1, 0, 1);
    writer.Add(argument);
    Add(writer.Finish());
  }
  void Add(const grpc::ByteBuffer& message) {
    Frame frame;
    CHECK(frame.Parse(message).ok());
    Call call;
    call.caller = answers;
    call.id = 1;
    call.bytes = message.Length();
    call.arrived = Clock::now();
    batcher_.Add(call, frame);
    ++added_;
  }
  // Runs the added calls and waits for all answers so far.
  void Run() {
    batcher_.Dispatch();
    answers->Wait(added_);
  }

 private:
  static Binding Bind(Local::Body body, int64_t row_bytes, bool isolate_errors) {
    Binding binding;
    binding.name = "f";
    Spec spec;
    spec.dtype = row_bytes > 0 ? DType::kUint8 : DType::kString;
    spec.dims = {-1};
    if (row_bytes > 0) spec.dims.push_back(row_bytes);
    binding.arguments = {spec};
    binding.num_results = 1;
    binding.batch = kDynamicBatch;
    binding.isolate_errors = isolate_errors;
    binding.functions.push_back(std::make_unique<Local>(std::move(body)));
    return binding;
  }

  Batcher batcher_;
  size_t added_ = 0;

 public:
  const std::shared_ptr<Answers> answers;
};

// A body that returns its argument.
inline Status Same(const std::vector<Tensor>& arguments, Tensor* result) {
  *result = arguments[0];
  return {};
}

// Lowers the limit of the address space during its life: large allocations fail, small ones find
// memory that the allocator has.
class ScarceMemory {
 public:
  ScarceMemory() {
    CHECK(getrlimit(RLIMIT_AS, &old_) == 0);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit scarce = {pages * 4096 + 8 * kMiB, old_.rlim_max};
    CHECK(setrlimit(RLIMIT_AS, &scarce) == 0);
  }
  ~ScarceMemory() { CHECK(setrlimit(RLIMIT_AS, &old_) == 0); }

 private:
  rlimit old_;
};

}  // namespace seed_rl::transport

#endif  // TESTS_GRPC_NATIVE_BATCHER_FIXTURE_H_
