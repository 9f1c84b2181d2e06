// Threads hand calls to batchers themselves, without gRPC's network, for ThreadSanitizer: what
// passes through gRPC, which is not instrumented, looks like a race to it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/batcher.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"
#include "tests/grpc/native/stress/functions.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {
namespace {

// Counts the answers it gets, and checks those that are no errors.
class CountingCaller : public Caller {
 public:
  explicit CountingCaller(int32_t value) : value_(value) {}
  void Send(grpc::ByteBuffer reply, size_t) override {
    Frame frame;
    CHECK(frame.Parse(reply).ok());
    if (frame.kind() == Kind::kReply) {
      CheckAnswer(frame.tensors()[0], value_);
      ++right_;
    }
    ++answers_;
  }
  int answers() const { return answers_; }
  int right() const { return right_; }

 private:
  const int32_t value_;
  std::atomic<int> answers_{0};
  std::atomic<int> right_{0};
};

}  // namespace

void StressBatchers(int rounds) {
  constexpr int kThreads = 4, kCalls = 400;
  int64_t right = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<Batcher>> batchers;
    for (Binding& binding : AllBindings()) {
      batchers.push_back(std::make_unique<Batcher>(std::move(binding), 6, round % 2 ? 0.1 : 0));
      batchers.back()->Start();
    }
    std::vector<std::shared_ptr<CountingCaller>> callers;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      auto caller = callers.emplace_back(std::make_shared<CountingCaller>(2 * t));
      threads.emplace_back([&batchers, caller, t, round] {
        std::mt19937 random(100 * round + t);
        for (int i = 0; i < kCalls; ++i) {
          std::vector<int64_t> dims = {kRowInts};
          if (const int64_t rows = random() % 5) dims.insert(dims.begin(), rows);
          FrameWriter writer(Kind::kCall, i, 0, 1);
          writer.Add(Ints(dims, 2 * t));
          Frame frame;
          CHECK(frame.Parse(writer.Finish()).ok());
          Call call;
          call.caller = caller;
          call.arrived = Clock::now();
          Batcher& batcher = *batchers[random() % batchers.size()];
          batcher.Add(call, frame);
          if (random() % 2 == 0) batcher.Dispatch();
          if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      });
    }
    if (round % 3 != 1) {  // Otherwise calls arrive during shutdown.
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }
    for (auto& batcher : batchers) {
      CHECK(batcher->stats().rows >= 0);
      batcher->Shutdown();
    }
    for (std::thread& thread : threads) thread.join();
    batchers.clear();
    for (const auto& caller : callers) {
      CHECK(caller->answers() == kCalls);  // Each call was answered, and once.
      right += caller->right();
    }
  }
  std::printf("%lld right answers\n", static_cast<long long>(right));
  CHECK(right > 0);
}

}  // namespace seed_rl::transport
