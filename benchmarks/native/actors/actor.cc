#include "actor.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace benchmarks {
namespace {

constexpr size_t kHeaderBytes = 24;
constexpr size_t kKindOffset = 4;
constexpr size_t kCallIdOffset = 8;
constexpr char kReply = 1;
constexpr double kReconnectS = 1;
constexpr int kKeepaliveMs = 20'000;  // The same as that of real actors.
constexpr char kCall[] = "/seed_rl.Inference/Call";
constexpr char kDescribe[] = "/seed_rl.Inference/Describe";
constexpr char kStats[] = "/seed_rl.Inference/Stats";

}  // namespace

Rpc::Rpc(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Shares no connection.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  channel = grpc::CreateCustomChannel(address, credentials, arguments);
  stub = std::make_unique<grpc::GenericStub>(channel);
  context.set_wait_for_ready(true);
}

Actor::Actor(Shared* shared, Timer timer, int number)
    : shared_(shared), timer_(std::move(timer)), number_(number) {}

void Actor::Connect() {
  Dial();
  state_ = State::kConnecting;
  Watch();
}

void Actor::Open() {
  if (!rpc_) Dial();
  rpc_->stream = rpc_->stub->PrepareCall(&rpc_->context, kCall, &shared_->queue);
  run_id_ = static_cast<int64_t>(shared_->random() >> 1) | 1;
  call_id_ = 0;
  next_ = 0;
  answered_ = false;
  state_ = State::kOpening;
  rpc_->stream->StartCall(this);
}

void Actor::Play(double spread_s) {
  state_ = State::kBeginning;
  timer_(this, spread_s * Uniform(0, 1));
}

void Actor::Leave() {
  leaving_ = true;
  if (rpc_ && rpc_->stream) {
    rpc_->context.TryCancel();
    if (state_ == State::kReady || state_ == State::kBeginning) Finish();
  }
}

void Actor::Return(Clock::time_point since) {
  leaving_ = false;
  answered_ = false;
  since_ = since;
  Ask(kDescribe);
}

void Actor::Wake() {
  if (state_ == State::kBeginning) {
    SendOrRest();
  } else if (state_ == State::kAbsent && !leaving_) {
    Return(Clock::now());
  }
}

void Actor::Proceed(bool ok) {
  switch (state_) {
    case State::kConnecting:
      return CheckConnection();
    case State::kAsking:
      return AskNext();
    case State::kOpening:
      return ok ? SendOrRest() : Finish();
    case State::kWriting:
      return ok ? Read() : Finish();
    case State::kReading:
      return ok ? Receive() : Finish();
    case State::kFinishing:
      return Lose();
    default:
      std::fprintf(stderr, "an actor expected nothing in state %d\n", static_cast<int>(state_));
      std::abort();
  }
}

double Actor::Uniform(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(shared_->random);
}

void Actor::Dial() { rpc_ = std::make_unique<Rpc>(shared_->address, shared_->credentials); }

void Actor::Watch() {
  const auto never = std::chrono::system_clock::now() + std::chrono::hours(24);
  rpc_->channel->NotifyOnStateChange(rpc_->channel->GetState(true), never, &shared_->queue, this);
}

void Actor::CheckConnection() {
  if (rpc_->channel->GetState(true) == GRPC_CHANNEL_READY) {
    state_ = State::kConnected;
  } else {
    Watch();
  }
}

void Actor::Ask(const char* method) {
  asked_ = method;
  Dial();
  const grpc::Slice nothing;
  rpc_->unary = rpc_->stub->PrepareUnaryCall(&rpc_->context, method, grpc::ByteBuffer(&nothing, 1),
                                             &shared_->queue);
  state_ = State::kAsking;
  rpc_->unary->StartCall();
  rpc_->unary->Finish(&rpc_->reply, &rpc_->status, this);
}

void Actor::AskNext() {
  if (!rpc_->status.ok()) {
    Lose();
  } else if (asked_ == kDescribe) {
    Ask(kStats);
  } else {
    rpc_.reset();
    Open();
  }
}

void Actor::SendOrRest() {
  if (shared_->playing) {
    Send();
  } else {
    state_ = State::kReady;
  }
}

void Actor::Send() {
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
  const grpc::Slice slices[2] = {
      grpc::Slice(own_),
      grpc::Slice(call.data() + own_.size(), call.size() - own_.size(), grpc::Slice::STATIC_SLICE)};
  sent_ = Clock::now();
  state_ = State::kWriting;
  rpc_->stream->Write(grpc::ByteBuffer(slices, 2), this);
}

void Actor::Read() {
  state_ = State::kReading;
  rpc_->stream->Read(&rpc_->reply, this);
}

void Actor::Receive() {
  const auto now = Clock::now();
  ++shared_->calls;
  if (sent_ >= shared_->measured_since) shared_->waits_s.push_back(Seconds(now - sent_));
  if (!answered_ && since_ != Clock::time_point()) {
    shared_->first_waits_s.push_back(Seconds(now - since_));
  }
  answered_ = true;
  CheckReply();
  SendOrRest();
}

void Actor::CheckReply() {
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

void Actor::Finish() {
  state_ = State::kFinishing;
  rpc_->stream->Finish(&rpc_->status, this);
}

// The connection is gone; unless the actor meant to leave, it tries again.
void Actor::Lose() {
  const std::string message = rpc_->status.error_message();
  rpc_.reset();
  state_ = State::kAbsent;
  if (leaving_) return;
  Report(&shared_->lost, "connection lost: " + message);
  timer_(this, kReconnectS * Uniform(0.5, 1));
}

void Actor::Report(int64_t* count, const std::string& problem) {
  ++*count;
  if (shared_->problem.empty()) shared_->problem = problem;
}

}  // namespace benchmarks
