// Stress of the transport alone, to be built with a sanitizer: see scripts/stress.sh.
//
// "service": servers are started and shut down under the calls of clients that check every answer,
// cancel, close and break off. "batcher": threads hand calls to batchers themselves, without gRPC's
// network, for ThreadSanitizer: what passes through gRPC, which is not instrumented, looks like a
// race to it. Functions answer at once, from another thread, or never.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "seed_rl/grpc/native/transport/batcher.h"
#include "seed_rl/grpc/native/transport/frame_stream.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

extern "C" CreateServerFn seed_transport_create_server;
extern "C" ConnectFn seed_transport_connect;

namespace {

#define CHECK(condition)                                                 \
  if (!(condition)) {                                                    \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    std::abort();                                                        \
  }

enum FunctionIndex : uint32_t { kQuick, kSlow, kStatic, kSingle, kFailing, kNever, kNumFunctions };
constexpr int64_t kStaticRows = 4;
constexpr int64_t kRowInts = 1500;  // 6,000 bytes: replies of several rows are borrowed.

std::shared_ptr<char> NewBytes(size_t bytes) {
  return {new char[bytes], [](char* data) { delete[] data; }};
}

Tensor Ints(std::vector<int64_t> dims, int32_t value) {
  Tensor tensor;
  tensor.dtype = DType::kInt32;
  tensor.dims = std::move(dims);
  size_t elements = 1;
  for (const int64_t dim : tensor.dims) elements *= dim;
  tensor.bytes = elements * sizeof(int32_t);
  std::shared_ptr<char> data = NewBytes(tensor.bytes);
  for (size_t i = 0; i < elements; ++i) reinterpret_cast<int32_t*>(data.get())[i] = value;
  tensor.data = data.get();
  tensor.owner = data;
  return tensor;
}

// Adds one to all elements.
std::vector<Tensor> AddOne(const std::vector<Tensor>& arguments) {
  Tensor result = Ints(arguments[0].dims, 0);
  auto* out = reinterpret_cast<int32_t*>(const_cast<char*>(result.data));
  const auto* in = reinterpret_cast<const int32_t*>(arguments[0].data);
  for (size_t i = 0; i < result.bytes / sizeof(int32_t); ++i) out[i] = in[i] + 1;
  return {result};
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

std::vector<Binding> AllBindings() {
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

// Listens at `address` and a port.
std::unique_ptr<Server> StartServer(const std::string& address, int* port) {
  ServerConfig config;
  config.addresses = {address, "127.0.0.1:0"};
  config.max_batch_size = 6;
  config.max_calls_per_peer = 5;
  config.threads = 2;
  Status status;
  std::unique_ptr<Server> server(seed_transport_create_server(config, &status));
  for (Binding& binding : AllBindings()) CHECK(server->Bind(std::move(binding)).ok());
  std::vector<int> ports;
  CHECK(server->Start("{}", &ports).ok());
  *port = ports[1];
  return server;
}

// A child that leaves destroys what is its parent's.
void ForkAndLeave(std::unique_ptr<Server>* server) {
  const pid_t child = fork();
  if (child == 0) {
    (*server)->Shutdown();
    server->reset();
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  CHECK(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

struct Outcome {
  std::mutex mu;
  std::condition_variable done;
  int pending = 0;  // Guarded by mu.
};

// A client that makes calls in bursts until the server goes or its time is up.
void Use(const std::string& address, int seed, std::atomic<int64_t>* answers) {
  std::mt19937 random(seed);
  for (int life = 0; life < 6; ++life) {
    ClientConfig config;
    config.address = address;
    config.connect_timeout_s = 0.5;
    config.call_timeout_s = random() % 4 == 0 ? 0.2 : 0;
    Status status;
    std::unique_ptr<Client> client(seed_transport_connect(config, &status));
    if (client == nullptr) return;
    auto outcome = std::make_shared<Outcome>();
    bool broken = false;
    for (int burst = 0; burst < 40 && !broken; ++burst) {
      const int calls = 1 + random() % 8;
      std::vector<uint64_t> ids;
      for (int i = 0; i < calls; ++i) {
        const uint32_t function = random() % (kNumFunctions + 1);  // One does not exist.
        const int32_t value = static_cast<int32_t>(random() % 1000);
        const int64_t rows = random() % 5;  // 0: without the leading dimension.
        std::vector<int64_t> dims = {kRowInts};
        if (rows > 0) dims.insert(dims.begin(), rows);
        {
          std::lock_guard<std::mutex> lock(outcome->mu);
          ++outcome->pending;
        }
        ids.push_back(
            client->Call(function, {Ints(dims, value)},
                         [outcome, dims, value, answers](const Status& status, const Reply* reply) {
                           if (status.ok()) {
                             CHECK(reply->size() == 1 && reply->dims(0) == dims);
                             std::vector<int32_t> result(reply->bytes(0) / sizeof(int32_t));
                             reply->CopyTo(0, reinterpret_cast<char*>(result.data()));
                             for (const int32_t element : result) CHECK(element == value + 1);
                             ++*answers;
                           }
                           std::lock_guard<std::mutex> lock(outcome->mu);
                           --outcome->pending;
                           outcome->done.notify_all();
                         }));
      }
      // Calls of "never", and of "static" without companions, end by being cancelled.
      std::unique_lock<std::mutex> lock(outcome->mu);
      outcome->done.wait_for(lock, std::chrono::milliseconds(random() % 10),
                             [&] { return outcome->pending == 0; });
      lock.unlock();
      for (const uint64_t id : ids) client->Cancel(id);
      lock.lock();
      CHECK(outcome->done.wait_for(lock, std::chrono::seconds(60),
                                   [&] { return outcome->pending == 0; }));
    }
    if (random() % 2 == 0) client->Close();
  }
}

// Threads that share a frame stream, wait for answers in turns, and forget some calls, until the
// server goes or their time is up.
void UseFrames(const std::string& address, int seed, std::atomic<int64_t>* answers) {
  SeedFrameStream* stream = seed_frame_stream_open(address.c_str(), "", false, "", 20, 64 << 20);
  std::atomic<uint64_t> next_id{1};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(10 * seed + t);
      for (int i = 0; i < 200; ++i) {
        const uint64_t id = next_id++;
        const int32_t value = static_cast<int32_t>(random() % 1000);
        FrameWriter writer(Kind::kCall, id, random() % (kNumFunctions + 1), 1);
        writer.Add(Ints({static_cast<int64_t>(random() % 4) + 1, kRowInts}, value));
        std::string frame = Text(writer.Finish());
        char* answer = nullptr;
        size_t bytes = 0;
        int result = seed_frame_stream_call(stream, id, frame.data(), frame.size(),
                                            0.001 * (random() % 5), &answer, &bytes);
        if (result == kSeedFramePending) {
          result = seed_frame_stream_wait(stream, id, 0.02, &answer, &bytes);
        }
        if (result == kSeedFramePending) {
          seed_frame_stream_forget(stream, id);
          continue;
        }
        if (result == kSeedFrameReply) {
          grpc::Slice slice(answer, bytes);
          Frame reply;
          CHECK(reply.Parse(grpc::ByteBuffer(&slice, 1)).ok() && reply.call_id() == id);
          if (reply.kind() == Kind::kReply) {
            std::vector<int32_t> elements(reply.tensors()[0].elements);
            Cursor(reply.tensors()[0].payload)
                .Read(reinterpret_cast<char*>(elements.data()), reply.tensors()[0].bytes);
            for (const int32_t element : elements) CHECK(element == value + 1);
            ++*answers;
          }
        }
        seed_frame_stream_free(answer);
        if (result == kSeedFrameBroken) return;
      }
    });
  }
  if (seed % 2 == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seed_frame_stream_close(stream, "enough");
  }
  for (std::thread& thread : threads) thread.join();
  seed_frame_stream_delete(stream);
}

void StressService(int rounds) {
  const std::string path = "/tmp/seed_rl_stress_" + std::to_string(getpid());
  const std::string address = "unix:" + path;
  std::atomic<int64_t> answers{0}, frames{0};
  for (int round = 0; round < rounds; ++round) {
    int port;
    std::unique_ptr<Server> server = StartServer(address, &port);
    ForkAndLeave(&server);
    const std::string tcp_address = "127.0.0.1:" + std::to_string(port);
    std::vector<std::thread> clients;
    for (int i = 0; i < 6; ++i) {
      clients.emplace_back(
          [&, i] { Use(i % 2 ? address : tcp_address, 100 * round + i, &answers); });
    }
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&, i] { UseFrames(address, 100 * round + i, &frames); });
    }
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50 + 20 * round));
      server->SetStatus("{\"round\": 1}");
      CHECK(!server->Stats().empty());
    }
    if (round % 2 == 0) server->Shutdown();
    server.reset();
    for (std::thread& client : clients) client.join();
  }
  std::printf("%lld right answers, %lld through frame streams\n",
              static_cast<long long>(answers.load()), static_cast<long long>(frames.load()));
  CHECK(answers > 0 && frames > 0);
}

// Counts the answers it gets, and checks those that are no errors.
class CountingCaller : public Caller {
 public:
  explicit CountingCaller(int32_t value) : value_(value) {}
  void Send(grpc::ByteBuffer reply, size_t) override {
    Frame frame;
    CHECK(frame.Parse(reply).ok());
    if (frame.kind() == Kind::kReply) {
      const TensorView& view = frame.tensors()[0];
      std::vector<int32_t> result(view.elements);
      Cursor(view.payload).Read(reinterpret_cast<char*>(result.data()), view.bytes);
      for (const int32_t element : result) CHECK(element == value_ + 1);
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
    if (round % 3 != 0) {
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

}  // namespace
}  // namespace seed_rl::transport

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const int rounds = std::atoi(argv[2]);
  if (std::string(argv[1]) == "service") {
    seed_rl::transport::StressService(rounds);
  } else {
    seed_rl::transport::StressBatchers(rounds);
  }
  return 0;
}
