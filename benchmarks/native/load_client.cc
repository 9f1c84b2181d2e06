// Generates load for any server of the wire format: CLIENTS connections, each of which sends the
// same call frame repeatedly (with a new call id) and waits for each reply. With as many THREADS as
// CLIENTS they wake up and run separately, as actors do; a single thread uses the least CPU. Like
// actors, it uses SCHED_BATCH, so that waking up preempts no other process.
//
// Usage: load_client ADDRESS CALL_FILE CLIENTS THREADS WARMUP_SECONDS SECONDS [CA_FILE]
// With CA_FILE, the certificate to trust, the connections are encrypted.
// Prints one JSON object: calls, errors, seconds, cpu_seconds (of this process).

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHeaderBytes = 24;
constexpr size_t kKindOffset = 4;
constexpr size_t kCallIdOffset = 8;
constexpr char kReply = 1;

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

struct Totals {
  int64_t calls = 0;
  int64_t errors = 0;
};

class Client {
 public:
  Client(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
         const std::string* call, grpc::CompletionQueue* queue, Totals* totals)
      : call_(call), totals_(totals) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection per client.
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, credentials, arguments);
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
    context_.set_wait_for_ready(true);
    stream_ = stub_->PrepareCall(&context_, "/seed_rl.Inference/Call", queue);
    stream_->StartCall(this);
  }

  // Returns false if the stream broke.
  bool Proceed(bool ok) {
    if (!ok) return false;
    switch (state_) {
      case State::kStarting:
        Write();
        return true;
      case State::kWriting:
        state_ = State::kReading;
        stream_->Read(&reply_, this);
        return true;
      case State::kReading:
        ++totals_->calls;
        if (!Answered()) ++totals_->errors;
        Write();
        return true;
    }
    return false;
  }

 private:
  enum class State { kStarting, kWriting, kReading };

  void Write() {
    char header[kHeaderBytes];
    ++call_id_;
    std::memcpy(header, call_->data(), kHeaderBytes);
    std::memcpy(header + kCallIdOffset, &call_id_, sizeof(call_id_));
    grpc::Slice slices[2] = {grpc::Slice(header, kHeaderBytes),
                             grpc::Slice(call_->data() + kHeaderBytes, call_->size() - kHeaderBytes,
                                         grpc::Slice::STATIC_SLICE)};
    state_ = State::kWriting;
    stream_->Write(grpc::ByteBuffer(slices, 2), this);
  }

  bool Answered() {
    grpc::Slice slice;
    if (!reply_.DumpToSingleSlice(&slice).ok() || slice.size() < kHeaderBytes) return false;
    const char* data = reinterpret_cast<const char*>(slice.begin());
    return data[kKindOffset] == kReply &&
           std::memcmp(data + kCallIdOffset, &call_id_, sizeof(call_id_)) == 0;
  }

  const std::string* const call_;
  Totals* const totals_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer reply_;
  uint64_t call_id_ = 0;
  State state_ = State::kStarting;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Some clients and their completion queue.
class Driver {
 public:
  Driver(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
         const std::string* call, int clients) {
    for (int i = 0; i < clients; ++i) {
      clients_.push_back(std::make_unique<Client>(address, credentials, call, &queue_, &totals_));
    }
  }

  // Runs the clients for `seconds`; false if one of them broke.
  bool Run(double seconds) {
    using Clock = std::chrono::steady_clock;
    totals_ = Totals();
    const auto length = std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
    const auto end = Clock::now() + length;
    const auto give_up = std::chrono::system_clock::now() + length + std::chrono::seconds(30);
    while (Clock::now() < end) {
      void* tag;
      bool ok;
      if (queue_.AsyncNext(&tag, &ok, give_up) != grpc::CompletionQueue::GOT_EVENT) {
        std::fprintf(stderr, "the server does not answer\n");
        return false;
      }
      if (!static_cast<Client*>(tag)->Proceed(ok)) {
        std::fprintf(stderr, "a stream broke\n");
        return false;
      }
    }
    return true;
  }

  const Totals& totals() const { return totals_; }

 private:
  grpc::CompletionQueue queue_;
  Totals totals_;
  std::vector<std::unique_ptr<Client>> clients_;
};

bool RunAll(const std::vector<std::unique_ptr<Driver>>& drivers, double seconds, Totals* totals) {
  std::atomic<bool> fine{true};
  std::vector<std::thread> threads;
  for (const auto& driver : drivers) {
    threads.emplace_back([&fine, seconds, driver = driver.get()] {
      if (!driver->Run(seconds)) fine = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& driver : drivers) {
    totals->calls += driver->totals().calls;
    totals->errors += driver->totals().errors;
  }
  return fine;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) {
    std::fprintf(
        stderr,
        "usage: load_client ADDRESS CALL_FILE CLIENTS THREADS WARMUP_SECONDS SECONDS [CA_FILE]\n");
    return 2;
  }
  const std::string call = ReadFile(argv[2]);
  if (call.size() < kHeaderBytes) {
    std::fprintf(stderr, "no call frame in %s\n", argv[2]);
    return 2;
  }
  const sched_param no_priority = {};
  if (sched_setscheduler(0, SCHED_BATCH, &no_priority) != 0) {
    std::perror("sched_setscheduler");
    return 1;
  }
  auto credentials = grpc::InsecureChannelCredentials();
  if (argc == 8) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ReadFile(argv[7]);
    credentials = grpc::SslCredentials(options);
  }
  const int num_clients = std::atoi(argv[3]);
  const int num_threads = std::atoi(argv[4]);
  std::vector<std::unique_ptr<Driver>> drivers;
  for (int i = 0; i < num_threads; ++i) {
    const int share = (num_clients + num_threads - 1 - i) / num_threads;
    drivers.push_back(std::make_unique<Driver>(argv[1], credentials, &call, share));
  }
  Totals warmup;
  if (!RunAll(drivers, std::atof(argv[5]), &warmup)) return 1;
  Totals totals;
  const double cpu = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  if (!RunAll(drivers, std::atof(argv[6]), &totals)) return 1;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("{\"calls\": %lld, \"errors\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
              static_cast<long long>(totals.calls), static_cast<long long>(totals.errors),
              elapsed.count(), CpuSeconds() - cpu);
  std::fflush(stdout);
  std::_Exit(0);  // Skips destructors: there is nothing to clean up.
}
