// Stress of the transport alone, to be built with a sanitizer.
//
// Usage: stress service|batcher ROUNDS
//
// Servers are started and shut down under the calls of clients that check every answer, cancel,
// close and break off.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/frame_stream.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"
#include "tests/grpc/native/stress/functions.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {

extern "C" CreateServerFn seed_transport_create_server;
extern "C" ConnectFn seed_transport_connect;

namespace {

// Listens at `address` and a port.
std::unique_ptr<Server> StartServer(const std::string& address, int* port) {
  ServerConfig config;
  config.addresses = {address, "127.0.0.1:0"};
  config.max_batch_size = 6;
  config.max_calls_per_peer = 5;
  config.threads = 2;
  std::unique_ptr<Server> server(seed_transport_create_server(config));
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
        ids.push_back(client->Call(
            function, {Ints(dims, value)},
            [outcome, dims, value, answers](const Status& status, std::vector<Tensor> results) {
              if (status.ok()) {
                CHECK(results.size() == 1 && results[0].dims == dims);
                std::vector<int32_t> result(results[0].bytes / sizeof(int32_t));
                std::memcpy(result.data(), results[0].data, results[0].bytes);
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
  SeedFrameStream* stream =
      seed_frame_stream_open(address.c_str(), "", false, "", "", "", 20, 64 << 20);
  seed_frame_stream_start(stream);
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
        grpc::Slice frame;
        CHECK(writer.Finish().DumpToSingleSlice(&frame).ok());
        char* answer = nullptr;
        size_t bytes = 0;
        int result =
            seed_frame_stream_call(stream, id, reinterpret_cast<const char*>(frame.begin()),
                                   frame.size(), 0.001 * (random() % 5), &answer, &bytes);
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
            CheckAnswer(reply.tensors()[0], value);
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

}  // namespace
}  // namespace seed_rl::transport

// Each kind of stress ends the process if an answer is wrong or missing.
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
