// Plays many actors against a learner from one thread: recorded calls instead of environments.
//
// Usage: actors ADDRESS RECORDING ACTORS [CERTIFICATE_AUTHORITY]
//
// Each actor has its own connection and its own environments, sends its calls in turn, and waits
// for each reply, as real actors do. benchmarks/load_actors.py writes RECORDING and describes it.
// Commands are lines on stdin; each is answered with one JSON object on stdout:
//
//   connect              every actor connects, and stays silent
//   open                 every actor opens its stream of calls
//   play SECONDS STEP_S  the actors play; each takes STEP_S on average from a reply to its next
//   call storm SECONDS        all actors disconnect, and come back as new lives that go on playing,
//   until
//                        each had a reply or SECONDS have passed
//
// Like actors, the process uses SCHED_BATCH, so that waking up preempts no other process.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeaderBytes = 24;
constexpr size_t kKindOffset = 4;
constexpr size_t kCallIdOffset = 8;
constexpr char kReply = 1;
constexpr int kKeepaliveMs = 20'000;  // As actors have it.
constexpr double kReconnectS = 1;
constexpr double kConnectS = 300;  // Longest wait for all actors to connect.

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// The calls of an actor: the first of a life, then the others in a circle.
struct Recording {
  uint32_t envs;     // Environments per actor.
  uint32_t env_ids;  // Where a call has its environment ids, ...
  uint32_t run_ids;  // ... and its run ids: the last bytes that differ between actors.
  std::vector<std::string> calls;

  size_t own_bytes() const { return run_ids + envs * sizeof(int64_t); }

  bool Read(const char* path) {
    const std::string data = ReadFile(path);
    size_t position = 0;
    const auto number = [&](uint32_t* value) {
      if (data.size() - position < sizeof(*value)) return false;
      std::memcpy(value, data.data() + position, sizeof(*value));
      position += sizeof(*value);
      return true;
    };
    uint32_t count, size;
    if (!number(&envs) || !number(&env_ids) || !number(&run_ids) || !number(&count)) return false;
    for (uint32_t i = 0; i < count; ++i) {
      if (!number(&size) || data.size() - position < size || size < own_bytes()) return false;
      calls.push_back(data.substr(position, size));
      position += size;
    }
    return calls.size() > 1 && position == data.size();
  }
};

// What the actors of this process share.
struct Shared {
  std::string address;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  Recording recording;
  grpc::CompletionQueue queue;
  std::mt19937_64 random{std::random_device()()};

  bool playing = false;
  double step_s = 0;
  Clock::time_point measured_since;
  std::vector<float> waits_s;        // From a call to its reply.
  std::vector<float> first_waits_s;  // From the start of a storm to an actor's first reply.
  int64_t calls = 0;
  int64_t errors = 0;   // Error frames.
  int64_t lost = 0;     // Connections that broke.
  std::string problem;  // The first of either.
};

// A connection with one RPC.
struct Rpc {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary;
  grpc::ByteBuffer reply;
  grpc::Status status;

  explicit Rpc(const Shared& shared) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    channel = grpc::CreateCustomChannel(shared.address, shared.credentials, arguments);
    stub = std::make_unique<grpc::GenericStub>(channel);
    context.set_wait_for_ready(true);
  }
};

// One actor. It has at most one operation in the completion queue, so that is its tag.
class Actor {
 public:
  // Calls `Wake` after so many seconds.
  using Timer = std::function<void(Actor*, double seconds)>;

  Actor(Shared* shared, Timer timer, int number)
      : shared_(shared), timer_(std::move(timer)), number_(number) {}

  bool connected() const { return state_ == State::kConnected; }
  bool ready() const { return state_ == State::kReady; }
  bool absent() const { return state_ == State::kAbsent; }
  bool answered() const { return answered_; }

  void Connect() {
    rpc_ = std::make_unique<Rpc>(*shared_);
    state_ = State::kConnecting;
    Watch();
  }

  void Open() {
    if (!rpc_) rpc_ = std::make_unique<Rpc>(*shared_);
    rpc_->stream =
        rpc_->stub->PrepareCall(&rpc_->context, "/seed_rl.Inference/Call", &shared_->queue);
    run_id_ = static_cast<int64_t>(shared_->random() >> 1) | 1;
    call_id_ = 0;
    next_ = 0;
    answered_ = false;
    state_ = State::kOpening;
    rpc_->stream->StartCall(this);
  }

  void Play(double spread_s) {
    state_ = State::kStepping;
    timer_(this, spread_s * Uniform(0, 1));
  }

  // Leaves; `absent` once that is done.
  void Leave() {
    leaving_ = true;
    if (rpc_ && rpc_->stream) {
      rpc_->context.TryCancel();
      if (state_ == State::kReady || state_ == State::kStepping) Finish();
    }
  }

  // Comes back as actors do: it asks for the functions and the status, each on a connection of its
  // own, before it opens the one that it keeps.
  void Return(Clock::time_point since) {
    leaving_ = false;
    answered_ = false;
    since_ = since;
    Ask(kDescribe);
  }

  void Wake() {
    if (state_ == State::kStepping) {
      if (shared_->playing) {
        Send();
      } else {
        state_ = State::kReady;
      }
    } else if (state_ == State::kAbsent && !leaving_) {
      Return(Clock::now());
    }
  }

  // The operation has ended.
  void Proceed(bool ok) {
    switch (state_) {
      case State::kConnecting:
        if (rpc_->channel->GetState(true) == GRPC_CHANNEL_READY) {
          state_ = State::kConnected;
        } else {
          Watch();
        }
        break;
      case State::kAsking:
        if (!rpc_->status.ok()) {
          Lose();
        } else if (asked_ == kDescribe) {
          Ask(kStats);
        } else {
          rpc_.reset();
          Open();
        }
        break;
      case State::kOpening:
        if (!ok) {
          Finish();
        } else if (shared_->playing) {
          Send();
        } else {
          state_ = State::kReady;
        }
        break;
      case State::kWriting:
        if (!ok) {
          Finish();
        } else {
          state_ = State::kReading;
          rpc_->stream->Read(&rpc_->reply, this);
        }
        break;
      case State::kReading:
        if (!ok) {
          Finish();
        } else {
          Receive();
        }
        break;
      case State::kFinishing:
        Lose();
        break;
      default:
        std::fprintf(stderr, "an actor expected nothing in state %d\n", static_cast<int>(state_));
        std::abort();
    }
  }

 private:
  enum class State {
    kAbsent,
    kConnecting,
    kConnected,
    kAsking,
    kOpening,
    kReady,
    kWriting,
    kReading,
    kStepping,
    kFinishing
  };
  static constexpr const char* kDescribe = "/seed_rl.Inference/Describe";
  static constexpr const char* kStats = "/seed_rl.Inference/Stats";

  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(shared_->random);
  }

  void Watch() {
    const auto never = std::chrono::system_clock::now() + std::chrono::hours(24);
    rpc_->channel->NotifyOnStateChange(rpc_->channel->GetState(true), never, &shared_->queue, this);
  }

  void Ask(const char* method) {
    asked_ = method;
    rpc_ = std::make_unique<Rpc>(*shared_);
    const grpc::Slice nothing;
    rpc_->unary = rpc_->stub->PrepareUnaryCall(&rpc_->context, method,
                                               grpc::ByteBuffer(&nothing, 1), &shared_->queue);
    state_ = State::kAsking;
    rpc_->unary->StartCall();
    rpc_->unary->Finish(&rpc_->reply, &rpc_->status, this);
  }

  void Send() {
    const Recording& recording = shared_->recording;
    const std::string& call = recording.calls[next_];
    next_ = next_ + 1 < recording.calls.size() ? next_ + 1 : 1;
    own_.assign(call, 0, recording.own_bytes());
    ++call_id_;
    std::memcpy(&own_[kCallIdOffset], &call_id_, sizeof(call_id_));
    for (uint32_t i = 0; i < recording.envs; ++i) {
      const int32_t env_id = number_ * recording.envs + i;
      std::memcpy(&own_[recording.env_ids + i * sizeof(env_id)], &env_id, sizeof(env_id));
      std::memcpy(&own_[recording.run_ids + i * sizeof(run_id_)], &run_id_, sizeof(run_id_));
    }
    const grpc::Slice slices[2] = {grpc::Slice(own_),
                                   grpc::Slice(call.data() + own_.size(), call.size() - own_.size(),
                                               grpc::Slice::STATIC_SLICE)};
    sent_ = Clock::now();
    state_ = State::kWriting;
    rpc_->stream->Write(grpc::ByteBuffer(slices, 2), this);
  }

  void Receive() {
    const auto now = Clock::now();
    ++shared_->calls;
    if (sent_ >= shared_->measured_since) shared_->waits_s.push_back(Seconds(now - sent_));
    if (!answered_ && since_ != Clock::time_point()) {
      shared_->first_waits_s.push_back(Seconds(now - since_));
    }
    answered_ = true;
    CheckReply();
    if (!shared_->playing) {
      state_ = State::kReady;
    } else if (shared_->step_s == 0) {
      Send();
    } else {
      state_ = State::kStepping;
      timer_(this, shared_->step_s * Uniform(0.5, 1.5));
    }
  }

  void CheckReply() {
    grpc::Slice slice;
    if (!rpc_->reply.DumpToSingleSlice(&slice).ok() || slice.size() < kHeaderBytes) {
      Report(&shared_->errors, "a reply without a header");
      return;
    }
    const char* data = reinterpret_cast<const char*>(slice.begin());
    if (data[kKindOffset] != kReply) {
      Report(&shared_->errors, std::string(data + kHeaderBytes, slice.size() - kHeaderBytes));
    } else if (std::memcmp(data + kCallIdOffset, &call_id_, sizeof(call_id_)) != 0) {
      Report(&shared_->errors, "a reply to another call");
    }
  }

  void Finish() {
    state_ = State::kFinishing;
    rpc_->stream->Finish(&rpc_->status, this);
  }

  // The connection is gone; unless that was the plan, the actor tries again.
  void Lose() {
    const std::string message = rpc_->status.error_message();
    rpc_.reset();
    state_ = State::kAbsent;
    if (leaving_) return;
    Report(&shared_->lost, "connection lost: " + message);
    timer_(this, kReconnectS * Uniform(0.5, 1));
  }

  void Report(int64_t* count, const std::string& problem) {
    ++*count;
    if (shared_->problem.empty()) shared_->problem = problem;
  }

  Shared* const shared_;
  const Timer timer_;
  const int number_;
  std::unique_ptr<Rpc> rpc_;
  const char* asked_ = nullptr;
  State state_ = State::kAbsent;
  bool leaving_ = false;
  bool answered_ = false;  // In this life.
  int64_t run_id_ = 0;
  uint64_t call_id_ = 0;
  size_t next_ = 0;
  std::string own_;  // The part of a call that is the actor's own.
  Clock::time_point sent_;
  Clock::time_point since_;  // When the storm began in which it lost its connection.
};

// Lines of stdin, read by a thread, so that the actors answer pings while there is no command.
class Commands {
 public:
  Commands() {
    std::thread([this] {
      std::string line;
      while (std::getline(std::cin, line)) {
        std::lock_guard<std::mutex> lock(mu_);
        lines_.push(line);
      }
      std::_Exit(0);
    }).detach();
  }

  bool Next(std::string* line) {
    std::lock_guard<std::mutex> lock(mu_);
    if (lines_.empty()) return false;
    *line = lines_.front();
    lines_.pop();
    return true;
  }

 private:
  std::mutex mu_;
  std::queue<std::string> lines_;
};

class Load {
 public:
  Load(Shared* shared, int actors) : shared_(shared) {
    const auto timer = [this](Actor* actor, double seconds) {
      timers_.push({Clock::now() + Duration(seconds), actor});
    };
    for (int i = 0; i < actors; ++i) {
      actors_.push_back(std::make_unique<Actor>(shared, timer, i));
    }
  }

  void Execute(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    double seconds = 0, step_s = 0, spread_s = 0;
    words >> command >> seconds >> step_s >> spread_s;
    Reset();
    const auto began = Clock::now();
    const double cpu_s = CpuSeconds();
    if (command == "connect") {
      for (auto& actor : actors_) actor->Connect();
      RunUntil(began + Duration(kConnectS), [](const Actor& actor) { return actor.connected(); });
    } else if (command == "open") {
      for (auto& actor : actors_) actor->Open();
      RunUntil(began + Duration(kConnectS), [](const Actor& actor) { return actor.ready(); });
    } else if (command == "play") {
      shared_->step_s = step_s;
      shared_->playing = true;
      for (auto& actor : actors_) {
        if (actor->ready()) actor->Play(spread_s);
      }
      RunUntil(began + Duration(seconds), [](const Actor&) { return false; });
      missing_ = 0;
    } else if (command == "storm") {
      shared_->playing = true;
      for (auto& actor : actors_) actor->Leave();
      RunUntil(began + Duration(seconds), [](const Actor& actor) { return actor.absent(); });
      Reset();
      for (auto& actor : actors_) {
        if (actor->absent()) actor->Return(began);
      }
      RunUntil(began + Duration(seconds), [](const Actor& actor) { return actor.answered(); });
    }
    shared_->playing = false;
    Print(Seconds(Clock::now() - began), CpuSeconds() - cpu_s);
  }

  // Handles what happens until `end`, or until `done` holds for all actors.
  void RunUntil(Clock::time_point end, const std::function<bool(const Actor&)>& done) {
    size_t finished = 0;  // All actors before this one were done when last seen.
    while (Clock::now() < end) {
      while (finished < actors_.size() && done(*actors_[finished])) ++finished;
      if (finished == actors_.size()) {
        // Until all are done at the same time: one may have lost its connection meanwhile.
        finished = 0;
        while (finished < actors_.size() && done(*actors_[finished])) ++finished;
        if (finished == actors_.size()) break;
      }
      Step(end);
    }
    missing_ = 0;
    for (auto& actor : actors_) missing_ += !done(*actor);
  }

  // Handles timers and one event, or waits for one until `end`.
  void Step(Clock::time_point end) {
    auto now = Clock::now();
    while (!timers_.empty() && timers_.top().first <= now) {
      Actor* const actor = timers_.top().second;
      timers_.pop();
      actor->Wake();
    }
    if (!timers_.empty()) end = std::min(end, timers_.top().first);
    const auto wait = std::max(Clock::duration::zero(), end - now);
    const auto deadline = std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
    void* tag;
    bool ok;
    if (shared_->queue.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<Actor*>(tag)->Proceed(ok);
    }
  }

 private:
  struct Later {
    template <class T>
    bool operator()(const T& a, const T& b) const {
      return a.first > b.first;
    }
  };
  using Entry = std::pair<Clock::time_point, Actor*>;

  void Reset() {
    shared_->measured_since = Clock::now();
    shared_->waits_s.clear();
    shared_->first_waits_s.clear();
    shared_->calls = shared_->errors = shared_->lost = 0;
    shared_->problem.clear();
  }

  void Print(double seconds, double cpu_s) {
    std::string problem;
    for (char c : shared_->problem.substr(0, 300)) {
      problem += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    std::printf(
        "{\"seconds\": %.3f, \"cpu_s\": %.3f, \"calls\": %lld, \"errors\": %lld, \"lost\": %lld, "
        "\"missing\": %zu, \"problem\": \"%s\", \"waits_ms\": %s, \"first_waits_ms\": %s}\n",
        seconds, cpu_s, static_cast<long long>(shared_->calls),
        static_cast<long long>(shared_->errors), static_cast<long long>(shared_->lost), missing_,
        problem.c_str(), Percentiles(&shared_->waits_s).c_str(),
        Percentiles(&shared_->first_waits_s).c_str());
    std::fflush(stdout);
  }

  // Median, 99th percentile and maximum in ms; null without values.
  static std::string Percentiles(std::vector<float>* seconds) {
    if (seconds->empty()) return "null";
    std::sort(seconds->begin(), seconds->end());
    const size_t last = seconds->size() - 1;
    char text[100];
    std::snprintf(text, sizeof(text), "[%.3f, %.3f, %.3f]", 1e3 * (*seconds)[last / 2],
                  1e3 * (*seconds)[static_cast<size_t>(0.99 * last)], 1e3 * (*seconds)[last]);
    return text;
  }

  Shared* const shared_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::priority_queue<Entry, std::vector<Entry>, Later> timers_;
  size_t missing_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: actors ADDRESS RECORDING ACTORS [CERTIFICATE_AUTHORITY]\n");
    return 2;
  }
  Shared shared;
  shared.address = argv[1];
  if (!shared.recording.Read(argv[2])) {
    std::fprintf(stderr, "%s is no recording\n", argv[2]);
    return 2;
  }
  shared.credentials = grpc::InsecureChannelCredentials();
  if (argc > 4) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ReadFile(argv[4]);
    shared.credentials = grpc::SslCredentials(options);
  }
  const sched_param no_priority = {};
  if (sched_setscheduler(0, SCHED_BATCH, &no_priority) != 0) {
    std::perror("sched_setscheduler");
    return 1;
  }
  Load load(&shared, std::atoi(argv[3]));
  Commands commands;
  std::printf("{}\n");  // Ready.
  std::fflush(stdout);
  std::string line;
  for (;;) {
    if (commands.Next(&line)) {
      load.Execute(line);
    } else {
      load.Step(Clock::now() + std::chrono::milliseconds(5));
    }
  }
}
