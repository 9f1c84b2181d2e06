#include "seed_rl/grpc/native/transport/frame_stream.h"

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "seed_rl/grpc/native/transport/channel.h"
#include "seed_rl/grpc/native/transport/runtime.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

// There is no thread: while calls wait, one of their threads polls for all of them. So a program
// with one caller, such as an actor, reads an answer without a switch between threads.
struct SeedFrameStream {
 public:
  explicit SeedFrameStream(const seed_rl::transport::ClientConfig& config);

  void Start() { stream_.Start(config_, channel_); }
  int Call(uint64_t call_id, const char* frame, size_t bytes, double timeout_s, char** answer,
           size_t* answer_bytes);
  int Wait(uint64_t call_id, double timeout_s, char** answer, size_t* answer_bytes);
  void Forget(uint64_t call_id);
  void Close(const std::string& reason);

 private:
  using Clock = std::chrono::system_clock;  // Of gRPC's deadlines.
  struct Answer {
    bool arrived = false;
    grpc::ByteBuffer frame;
  };

  // The following require mu_.
  void Handle(void* tag, bool ok);
  void OnMessage();
  void Break(const std::string& reason);

  friend struct SeedRequest;

  const seed_rl::transport::ClientConfig config_;
  const std::shared_ptr<grpc::Channel> channel_;

  std::mutex mu_;
  // Signals an answer, the end of the stream, or that a thread has stopped polling.
  std::condition_variable changed_;
  seed_rl::transport::CallStream stream_;  // Guarded by mu_, but for Start, polling and Cancel.
  bool polling_ = false;                   // A thread polls. Guarded by mu_.
  bool broken_ = false;                    // Calls fail with reason_. Guarded by mu_.
  std::string reason_;                     // Guarded by mu_.
  std::unordered_map<uint64_t, Answer> calls_;  // Guarded by mu_.
};

namespace {

constexpr double kLongestWait = 1e6;  // Seconds; later deadlines may overflow.

int Return(int result, const char* text, size_t bytes, char** answer, size_t* answer_bytes) {
  *answer = static_cast<char*>(std::malloc(bytes + 1));
  if (*answer == nullptr) std::abort();
  std::memcpy(*answer, text, bytes);
  *answer_bytes = bytes;
  return result;
}

}  // namespace

SeedFrameStream::SeedFrameStream(const seed_rl::transport::ClientConfig& config)
    : config_(config), channel_(seed_rl::transport::OpenChannel(config)) {}

int SeedFrameStream::Call(uint64_t call_id, const char* frame, size_t bytes, double timeout_s,
                          char** answer, size_t* answer_bytes) {
  {
    grpc::Slice slice(frame, bytes);
    std::lock_guard<std::mutex> lock(mu_);
    if (!broken_) {
      calls_[call_id];
      grpc::ByteBuffer buffer(&slice, 1);
      stream_.Write(&buffer);
    }
  }
  return Wait(call_id, timeout_s, answer, answer_bytes);
}

int SeedFrameStream::Wait(uint64_t call_id, double timeout_s, char** answer, size_t* answer_bytes) {
  // gRPC would wait until the next millisecond begins, unless the deadline is long past.
  const Clock::time_point deadline =
      timeout_s > 0
          ? Clock::now() + seed_rl::transport::ToDuration(std::min(timeout_s, kLongestWait))
          : Clock::time_point();
  std::unique_lock<std::mutex> lock(mu_);
  // Even without time to wait, this handles all that has happened, so that calls that were only
  // started get written, and answers that are fetched late are found.
  bool late = false;
  while (true) {
    const auto call = calls_.find(call_id);
    if (call != calls_.end() && call->second.arrived) {
      grpc::ByteBuffer frame;
      frame.Swap(&call->second.frame);
      calls_.erase(call);
      lock.unlock();
      std::vector<grpc::Slice> slices;
      *answer_bytes = frame.Length();
      *answer = static_cast<char*>(std::malloc(*answer_bytes + 1));
      if (*answer == nullptr || !frame.Dump(&slices).ok()) std::abort();
      seed_rl::transport::Cursor(&slices).Read(*answer, *answer_bytes);
      return kSeedFrameReply;
    }
    if (broken_) {
      calls_.erase(call_id);
      return Return(kSeedFrameBroken, reason_.data(), reason_.size(), answer, answer_bytes);
    }
    if (late) return kSeedFramePending;
    if (polling_) {
      late = changed_.wait_until(lock, deadline) == std::cv_status::timeout;
      continue;
    }
    polling_ = true;
    lock.unlock();
    void* tag;
    bool ok;
    const auto next = stream_.queue.AsyncNext(&tag, &ok, deadline);
    lock.lock();
    polling_ = false;
    late = next == grpc::CompletionQueue::TIMEOUT;
    if (next == grpc::CompletionQueue::GOT_EVENT) Handle(tag, ok);
    changed_.notify_all();
  }
}

void SeedFrameStream::Forget(uint64_t call_id) {
  std::lock_guard<std::mutex> lock(mu_);
  calls_.erase(call_id);
}

void SeedFrameStream::Close(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    Break(reason);
  }
  stream_.Cancel();
}

void SeedFrameStream::Handle(void* tag, bool ok) {
  using Event = seed_rl::transport::CallStream::Event;
  const Event event = stream_.Handle(tag, ok);
  if (event == Event::kEnded) {
    const grpc::Status& status = stream_.status;
    Break(status.ok() ? "the server ended the stream"
                      : absl::StatusCodeToString(absl::StatusCode(status.error_code())) + ": " +
                            status.error_message());
  } else if (event == Event::kMessage) {
    OnMessage();
    stream_.Read();
  }
}

void SeedFrameStream::OnMessage() {
  seed_rl::transport::Frame frame;
  const seed_rl::transport::Status status = frame.Parse(stream_.message);
  const auto call = calls_.find(frame.call_id());
  if (call != calls_.end()) {
    // Readable or not: the caller decodes it, and reports what is wrong.
    call->second.arrived = true;
    call->second.frame.Swap(&stream_.message);
  } else if (frame.call_id() == seed_rl::transport::kUnreadableCallId) {
    // One of our calls will never be answered, and we cannot tell which.
    Break(status.ok() ? "the server could not read a call"
                      : "the server sent " + std::to_string(stream_.message.Length()) +
                            " bytes, which is not a frame: " + status.message);
    stream_.Cancel();
  }
}

void SeedFrameStream::Break(const std::string& reason) {
  if (broken_) return;
  broken_ = true;
  reason_ = reason;
  changed_.notify_all();
}

struct SeedRequest : seed_rl::transport::Request {
  SeedRequest(const SeedFrameStream& stream, const char* method, double timeout_s,
              bool wait_for_server)
      : Request(stream.config_, stream.channel_, method, wait_for_server,
                SystemClock::now() +
                    seed_rl::transport::ToDuration(std::min(timeout_s, kLongestWait))) {}
  using SystemClock = seed_rl::transport::SystemClock;
};

#define SEED_EXPORT extern "C" __attribute__((visibility("default")))

SEED_EXPORT SeedFrameStream* seed_frame_stream_open(const char* address, const char* token,
                                                    bool tls, const char* tls_ca,
                                                    const char* tls_cert, const char* tls_key,
                                                    double keepalive_s, int64_t max_message_bytes) {
  seed_rl::transport::ConfigureRuntime();
  seed_rl::transport::ClientConfig config;
  config.address = address;
  config.token = token;
  config.tls = tls;
  config.tls_ca = tls_ca;
  config.tls_cert = tls_cert;
  config.tls_key = tls_key;
  config.keepalive_s = keepalive_s;
  config.max_message_bytes = max_message_bytes;
  return new SeedFrameStream(config);
}

SEED_EXPORT SeedRequest* seed_frame_stream_request(SeedFrameStream* stream, const char* method,
                                                   double timeout_s, bool wait_for_server) {
  return new SeedRequest(*stream, method, timeout_s, wait_for_server);
}

SEED_EXPORT int seed_request_wait(SeedRequest* request, double timeout_s, int* code, char** answer,
                                  size_t* answer_bytes) {
  const auto wait = seed_rl::transport::ToDuration(timeout_s);
  if (!request->Wait(seed_rl::transport::SystemClock::now() + wait)) return kSeedFramePending;
  *code = request->status().error_code();
  const bool ok = request->status().ok();
  const std::string text = ok ? request->Answer() : request->status().error_message();
  return Return(ok ? kSeedFrameReply : kSeedFrameBroken, text.data(), text.size(), answer,
                answer_bytes);
}

SEED_EXPORT void seed_request_delete(SeedRequest* request) { delete request; }

SEED_EXPORT void seed_frame_stream_start(SeedFrameStream* stream) { stream->Start(); }

SEED_EXPORT int seed_frame_stream_call(SeedFrameStream* stream, uint64_t call_id, const char* frame,
                                       size_t bytes, double timeout_s, char** answer,
                                       size_t* answer_bytes) {
  return stream->Call(call_id, frame, bytes, timeout_s, answer, answer_bytes);
}

SEED_EXPORT int seed_frame_stream_wait(SeedFrameStream* stream, uint64_t call_id, double timeout_s,
                                       char** answer, size_t* answer_bytes) {
  return stream->Wait(call_id, timeout_s, answer, answer_bytes);
}

SEED_EXPORT void seed_frame_stream_forget(SeedFrameStream* stream, uint64_t call_id) {
  stream->Forget(call_id);
}

SEED_EXPORT void seed_frame_stream_free(char* answer) { std::free(answer); }

SEED_EXPORT void seed_frame_stream_close(SeedFrameStream* stream, const char* reason) {
  stream->Close(reason);
}

SEED_EXPORT void seed_frame_stream_delete(SeedFrameStream* stream) { delete stream; }
