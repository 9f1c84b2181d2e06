// A client's channel, its requests and its stream of calls.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

using SystemClock = std::chrono::system_clock;  // gRPC's deadlines.
using SteadyClock = std::chrono::steady_clock;
std::chrono::nanoseconds ToDuration(double seconds);

// A channel with a connection of its own, not yet connected.
std::shared_ptr<grpc::Channel> OpenChannel(const ClientConfig& config);

// A request of a server's unary method.
class Request {
 public:
  // Sends it; `wait_for_server`: as soon as the channel is connected.
  Request(const ClientConfig& config, const std::shared_ptr<grpc::Channel>& channel,
          const char* method, bool wait_for_server, SystemClock::time_point deadline);
  // Cancels it, unless it has ended.
  ~Request();
  // Whether it has ended by `deadline`.
  bool Wait(SystemClock::time_point deadline);
  // Once it has ended.
  const grpc::Status& status() const { return status_; }
  std::string Answer() const;

 private:
  const bool encrypted_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  bool ended_ = false;
};

// A client's stream of calls: frames are written in order, and read one at a time. Its owner polls
// the queue, and holds a lock around Write and Handle, because nothing here is locked. Only the
// thread that has polled uses `message` and `status`.
class CallStream {
 public:
  enum class Event {
    kNothing,
    kMessage,  // A frame has arrived in `message`. Read must follow.
    kEnded     // `status` is known, and no more events come.
  };
  // Ends the stream. No other thread may poll.
  ~CallStream();

  // At most once, before the queue is polled.
  void Start(const ClientConfig& config, const std::shared_ptr<grpc::Channel>& channel);
  // Takes the frame.
  void Write(grpc::ByteBuffer* frame);
  // Handles what was polled.
  Event Handle(void* tag, bool ok);
  // Starts to read the next frame into `message`; the first read starts by itself. Only by the
  // thread that has polled; another may Write meanwhile.
  void Read();
  // Breaks the stream, which then ends. Thread-safe.
  void Cancel() { context_.TryCancel(); }

  grpc::CompletionQueue queue;
  grpc::ByteBuffer message;
  grpc::Status status;

 private:
  enum Tag : intptr_t { kStarted = 1, kRead, kWritten, kFinished };

  void WriteNext();
  void FinishIfIdle();

  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::deque<grpc::ByteBuffer> outgoing_;  // The first one is being written if writing_.
  bool writable_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool ended_ = false;
};

// Waits for the server, up to `connect_timeout_s`, and gets its description.
Status Connect(const ClientConfig& config, std::shared_ptr<grpc::Channel>* channel,
               std::string* description);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_CHANNEL_H_
