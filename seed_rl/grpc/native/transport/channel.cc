#include "seed_rl/grpc/native/transport/channel.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "seed_rl/grpc/native/transport/addresses.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {
namespace {

// Between attempts to connect.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{2000};

grpc::Status Describe(const ClientConfig& config, const std::shared_ptr<grpc::Channel>& channel,
                      bool wait_for_ready, SystemClock::time_point deadline,
                      std::string* description) {
  Request request(config, channel, kDescribeMethod, wait_for_ready, deadline);
  request.Wait(SystemClock::time_point::max());
  if (request.status().ok()) *description = request.Answer();
  return request.status();
}

// `address` as gRPC parses it. In "unix:PATH" it would take some characters of a path for parts of
// a URI.
std::string Target(const std::string& address) {
  if (!IsUnix(address)) return address;
  std::string target;
  for (const unsigned char c : address) {
    if (std::isalnum(c) || std::strchr("/:._-~", c) != nullptr) {
      target += static_cast<char>(c);
    } else {
      char escaped[4];
      std::snprintf(escaped, sizeof(escaped), "%%%02X", c);
      target += escaped;
    }
  }
  return target;
}

bool Encrypts(const ClientConfig& config) { return config.tls && !IsUnix(config.address); }

void Authenticate(const ClientConfig& config, grpc::ClientContext* context) {
  if (!config.token.empty()) context->AddMetadata("authorization", "Bearer " + config.token);
}

// Makes the process end without what is registered to run at its exit. OpenSSL has registered that
// it frees its memory, which gRPC's threads may be using: channels are closed in the background.
// What is registered last runs first, and OpenSSL may register only in a later request, the first
// that finds its host. So each request calls this.
void ExitWithoutCleanup() {
  on_exit(
      [](int status, void*) {
        for (FILE* stream : {stdout, stderr}) {  // Unless a blocked thread holds its lock.
          if (ftrylockfile(stream) == 0) fflush_unlocked(stream);
        }
        _exit(status);
      },
      nullptr);
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const ClientConfig& config) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(config.max_message_bytes);
  arguments.SetMaxSendMessageSize(-1);
  // Otherwise the clients of a process would share a connection and wait for each other.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, int(config.keepalive_s * 1000));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, int(config.keepalive_s * 1000));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Proxies are for the Internet, not for servers of the same cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (Encrypts(config)) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = config.tls_ca;
    options.pem_cert_chain = config.tls_cert;
    options.pem_private_key = config.tls_key;
    credentials = grpc::SslCredentials(options);
  }
  return grpc::CreateCustomChannel(Target(config.address), credentials, arguments);
}

std::chrono::nanoseconds ToDuration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

Request::Request(const ClientConfig& config, const std::shared_ptr<grpc::Channel>& channel,
                 const char* method, bool wait_for_server, SystemClock::time_point deadline)
    : encrypted_(Encrypts(config)) {
  context_.set_wait_for_ready(wait_for_server);
  context_.set_deadline(deadline);
  Authenticate(config, &context_);
  grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  reader_ = grpc::GenericStub(channel).PrepareUnaryCall(&context_, method, request, &queue_);
  reader_->StartCall();
  reader_->Finish(&answer_, &status_, this);
}

Request::~Request() {
  context_.TryCancel();
  Wait(SystemClock::time_point::max());
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
  if (encrypted_) ExitWithoutCleanup();
}

bool Request::Wait(SystemClock::time_point deadline) {
  void* tag;
  bool ok;
  if (!ended_) ended_ = queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT;
  return ended_;
}

std::string Request::Answer() const {
  grpc::Slice slice;
  answer_.DumpToSingleSlice(&slice);
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

void CallStream::Start(const ClientConfig& config, const std::shared_ptr<grpc::Channel>& channel) {
  Authenticate(config, &context_);
  stream_ = grpc::GenericStub(channel).PrepareCall(&context_, kCallMethod, &queue);
  stream_->StartCall(reinterpret_cast<void*>(kStarted));
}

CallStream::~CallStream() {
  Cancel();
  void* tag;
  bool ok;
  while (stream_ != nullptr && !ended_) {
    queue.Next(&tag, &ok);
    if (Handle(tag, ok) == Event::kMessage) Read();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

void CallStream::Write(grpc::ByteBuffer* frame) {
  outgoing_.emplace_back();
  outgoing_.back().Swap(frame);  // It has no move constructor.
  if (writable_ && !writing_) WriteNext();
}

void CallStream::WriteNext() {
  writing_ = true;
  stream_->Write(outgoing_.front(), reinterpret_cast<void*>(kWritten));
}

void CallStream::Read() {
  message.Clear();
  stream_->Read(&message, reinterpret_cast<void*>(kRead));
}

CallStream::Event CallStream::Handle(void* tag, bool ok) {
  switch (static_cast<Tag>(reinterpret_cast<intptr_t>(tag))) {
    case kStarted:
      writable_ = reading_ = ok;
      if (ok) Read();
      if (ok && !outgoing_.empty()) WriteNext();
      break;
    case kRead:
      if (ok) return Event::kMessage;
      reading_ = false;
      break;
    case kWritten:
      writing_ = false;
      outgoing_.pop_front();
      writable_ = writable_ && ok;
      if (writable_ && !outgoing_.empty()) WriteNext();
      break;
    case kFinished:
      ended_ = true;
      return Event::kEnded;
  }
  FinishIfIdle();
  return Event::kNothing;
}

// Requests the final status once nothing more can be read and no write is in progress.
void CallStream::FinishIfIdle() {
  if (finishing_ || reading_) return;
  writable_ = false;
  if (writing_) return;
  finishing_ = true;
  stream_->Finish(&status, reinterpret_cast<void*>(kFinished));
}

Status Connect(const ClientConfig& config, std::shared_ptr<grpc::Channel>* channel,
               std::string* description) {
  *channel = OpenChannel(config);
  const auto timeout = ToDuration(config.connect_timeout_s);
  const SystemClock::time_point deadline = SystemClock::now() + timeout;
  const SteadyClock::time_point end = SteadyClock::now() + timeout;
  grpc::Status status;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    status = Describe(config, *channel, true, deadline, description);
    if (status.ok()) return {};
    // Despite wait_for_ready, a proxy without a server and a server that is shutting down answer
    // this.
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
    if (SteadyClock::now() + pause >= end) break;
    std::this_thread::sleep_for(pause);
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    // Without wait_for_ready, gRPC reports why the last attempt failed.
    const grpc::Status reason = Describe(config, *channel, false,
                                         SystemClock::now() + std::chrono::seconds(1), description);
    if (reason.ok()) return {};
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g", config.connect_timeout_s);
    return {Code::kUnavailable, "No server at " + config.address + " within " + seconds +
                                    " s; is the learner running there? (" + reason.error_message() +
                                    ")"};
  }
  return {static_cast<Code>(status.error_code()),
          "Connecting to " + config.address + ": " + status.error_message()};
}

}  // namespace seed_rl::transport
