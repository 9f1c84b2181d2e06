#include "seed_rl/grpc/native/transport/rpc.h"

namespace seed_rl::transport {

Rpc::Rpc(RpcHost* host, grpc::ServerCompletionQueue* queue)
    : host_(host), queue_(queue), stream_(&context_) {
  host_->RpcBegins();
}

Rpc::~Rpc() {
  host_->AddUnansweredBytes(-static_cast<int64_t>(bytes_));
  host_->RpcEnds();
}

void Rpc::Listen() {
  // gRPC never completes `done_` if no RPC arrives, so it holds no reference until one does.
  context_.AsyncNotifyWhenDone(&done_);
  host_->Request(this, incoming_.Start(shared_from_this()));
}

void Rpc::OnIncoming(bool ok) {
  if (!ok) return;  // The server is shutting down.
  done_.Start(shared_from_this());
  host_->Accept(queue_);
  grpc::Status status = host_->Authorize(context_);
  if (!status.ok()) {
    Reject(status);
  } else if (context_.method() == kCallMethod) {
    StartStream();
  } else {
    StartUnary();
  }
}

void Rpc::OnDone(bool) {
  if (context_.IsCancelled()) Close(grpc::Status::CANCELLED);
}

void Rpc::OnFinished(bool) { host_->CloseStream(shared_from_this()); }

void Rpc::Reject(const grpc::Status& status) {
  std::lock_guard<std::mutex> lock(mu_);
  finished_ = true;
  stream_.Finish(status, finish_.Start(shared_from_this()));
}

// --- Unary methods.

void Rpc::StartUnary() {
  const auto answer = host_->Answer(context_.method());
  if (!answer) {
    // Without the method's name: gRPC keeps the text until the peer has read it.
    Reject({grpc::StatusCode::UNIMPLEMENTED, "Unknown method"});
    return;
  }
  // No method uses its request. Reading it would let any client leave half a message in memory.
  const grpc::Slice slice(answer());
  std::lock_guard<std::mutex> lock(mu_);
  finished_ = true;
  stream_.WriteAndFinish(grpc::ByteBuffer(&slice, 1), {}, grpc::Status::OK,
                         finish_.Start(shared_from_this()));
}

// --- Streams of calls.

void Rpc::StartStream() {
  grpc::Status status = host_->OpenStream(shared_from_this());
  if (!status.ok()) {
    Reject(status);
    return;
  }
  std::lock_guard<std::mutex> lock(mu_);
  ReadMore();
}

void Rpc::OnRead(bool ok) {
  if (ok) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ++calls_;
      CountBytes(message_.Length());
    }
    host_->Receive(shared_from_this(), message_);
    message_.Clear();
  }
  std::lock_guard<std::mutex> lock(mu_);
  reading_ = false;
  if (!ok) half_closed_ = true;
  FinishIfDrained();
}

void Rpc::Receive() {
  std::lock_guard<std::mutex> lock(mu_);
  ReadMore();
}

void Rpc::Send(grpc::ByteBuffer reply, size_t request_bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  if (closing_) return;
  if (reply_bytes_ >= host_->MaxUnsentBytes()) {
    Drop();
    return;
  }
  reply_bytes_ += reply.Length();
  CountBytes(reply.Length());
  replies_.emplace_back(std::move(reply), request_bytes);
  if (!writing_) WriteNext();
}

void Rpc::OnWritten(bool ok) {
  std::lock_guard<std::mutex> lock(mu_);
  writing_ = false;
  --calls_;
  const int64_t reply_bytes = replies_.front().first.Length();
  reply_bytes_ -= reply_bytes;
  CountBytes(-reply_bytes - static_cast<int64_t>(replies_.front().second));
  replies_.pop_front();
  if (!ok) closing_ = true;
  if (!closing_ && !replies_.empty()) WriteNext();
  ReadMore();
  FinishIfDrained();
}

void Rpc::Close(const grpc::Status& status) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!closing_) status_ = status;
  closing_ = true;
  FinishIfDrained();
}

bool Rpc::Full() const {
  return calls_ >= host_->max_calls_per_peer() || bytes_ >= host_->max_bytes_per_peer() ||
         (calls_ > 0 && host_->TooManyBytes());
}

void Rpc::CountBytes(int64_t bytes) {
  bytes_ += bytes;
  host_->AddUnansweredBytes(bytes);
}

void Rpc::Drop() {
  closing_ = true;
  // The one that is being written is gRPC's. Cancelling ends the write; unlike TryCancel, this
  // tells the client why.
  replies_.resize(1);
  grpc_call_cancel_with_status(context_.c_call(), GRPC_STATUS_RESOURCE_EXHAUSTED,
                               "The client does not read its answers", nullptr);
}

void Rpc::ReadMore() {
  if (reading_ || half_closed_ || closing_ || finished_ || Full()) return;
  reading_ = true;
  stream_.Read(&message_, read_.Start(shared_from_this()));
}

void Rpc::WriteNext() {
  writing_ = true;
  stream_.Write(replies_.front().first, write_.Start(shared_from_this()));
}

void Rpc::FinishIfDrained() {
  if (finished_ || writing_) return;
  if (!closing_ && !(half_closed_ && calls_ == 0)) return;
  finished_ = closing_ = true;
  replies_.clear();
  stream_.Finish(status_, finish_.Start(shared_from_this()));
}

}  // namespace seed_rl::transport
