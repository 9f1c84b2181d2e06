// One actor, as a state machine over the events of a completion queue.

#ifndef BENCHMARKS_NATIVE_ACTORS_ACTOR_H_
#define BENCHMARKS_NATIVE_ACTORS_ACTOR_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "clock.h"
#include "recording.h"

namespace benchmarks {

// A connection with one RPC.
struct Rpc {
  Rpc(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

// What the actors of this process share.
struct Shared {
  std::string address;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  Recording recording;
  grpc::CompletionQueue queue;
  std::mt19937_64 random{std::random_device()()};

  bool playing = false;
  Clock::time_point measured_since;
  std::vector<float> waits_s;        // From a call to its reply.
  std::vector<float> first_waits_s;  // From the start of a storm to an actor's first reply.
  int64_t calls = 0;
  int64_t errors = 0;   // Error frames.
  int64_t lost = 0;     // Connections that broke.
  std::string problem;  // The first of either.
};

// It has at most one operation in the completion queue, so the actor is the operation's tag.
class Actor {
 public:
  // Calls `Wake` after a number of seconds.
  using Timer = std::function<void(Actor*, double seconds)>;

  Actor(Shared* shared, Timer timer, int number);

  bool connected() const { return state_ == State::kConnected; }
  bool ready() const { return state_ == State::kReady; }
  bool absent() const { return state_ == State::kAbsent; }
  bool answered() const { return answered_; }

  void Connect();
  void Open();
  // Makes its first call after a random time of up to `spread_s`.
  void Play(double spread_s);
  // Disconnects; `absent` once that is done.
  void Leave();
  // Comes back: it asks for the functions and the status, each on a connection of its own, before
  // it opens the one that it keeps. Actors ask on that one, so this is harder on the server.
  void Return(Clock::time_point since);
  // The timer has expired.
  void Wake();
  // The operation has ended.
  void Proceed(bool ok);

 private:
  enum class State {
    kAbsent,
    kConnecting,
    kConnected,
    kAsking,
    kOpening,
    kReady,
    kBeginning,
    kWriting,
    kReading,
    kFinishing
  };

  double Uniform(double low, double high);
  void Dial();
  void Watch();
  void CheckConnection();
  void Ask(const char* method);
  void AskNext();
  void SendOrRest();
  void Send();
  void Read();
  void Receive();
  void CheckReply();
  void Finish();
  void Lose();
  void Report(int64_t* count, const std::string& problem);

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
  std::string own_;  // The part of a call that differs between actors.
  Clock::time_point sent_;
  Clock::time_point since_;  // When the storm began in which it lost its connection.
};

}  // namespace benchmarks

#endif  // BENCHMARKS_NATIVE_ACTORS_ACTOR_H_
