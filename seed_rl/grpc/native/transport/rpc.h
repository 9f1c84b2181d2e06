// The server's side of one RPC.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_RPC_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_RPC_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "seed_rl/grpc/native/transport/batcher.h"

namespace seed_rl::transport {

class Rpc;

// What an Rpc needs from its server. Thread-safe.
class RpcHost {
 public:
  virtual ~RpcHost() = default;
  // Count the Rpcs that exist; the host must outlive them.
  virtual void RpcBegins() = 0;
  virtual void RpcEnds() = 0;
  // Assigns the next incoming RPC of any method to `rpc`, and then completes `tag`.
  virtual void Request(Rpc* rpc, void* tag) = 0;
  // Creates an Rpc that waits for the next incoming one, unless the server is closing.
  virtual void Accept(grpc::ServerCompletionQueue* queue) = 0;
  // Checks the client's token.
  virtual grpc::Status Authorize(const grpc::GenericServerContext& context) = 0;
  // A function that computes the answer of a unary method; null if there is no such method.
  virtual std::function<std::string()> Answer(const std::string& method) = 0;
  // Admits a stream of calls, or returns why not. If admitted, CloseStream must follow.
  virtual grpc::Status OpenStream(const std::shared_ptr<Rpc>& rpc) = 0;
  virtual void CloseStream(const std::shared_ptr<Rpc>& rpc) = 0;
  // Handles a message of a stream.
  virtual void Receive(const std::shared_ptr<Rpc>& rpc, const grpc::ByteBuffer& message) = 0;
  virtual int64_t max_calls_per_peer() const = 0;
  virtual size_t max_bytes_per_peer() const = 0;
  // Limit of a stream's unsent replies; lower if those of all streams take too much.
  virtual size_t MaxUnsentBytes() = 0;
  // Counts the bytes of unanswered calls and unsent replies of all peers.
  virtual void AddUnansweredBytes(int64_t bytes) = 0;
  virtual bool TooManyBytes() const = 0;
};

// Lives as long as gRPC or a pending call refers to it.
class Rpc : public Caller, public std::enable_shared_from_this<Rpc> {
 public:
  // An operation in the completion queue; keeps its Rpc alive until completed.
  class Operation {
   public:
    using Handler = void (Rpc::*)(bool ok);
    explicit Operation(Handler handler) : handler_(handler) {}
    // Returns the tag to start the operation with.
    void* Start(std::shared_ptr<Rpc> rpc) {
      rpc_ = std::move(rpc);
      return this;
    }
    // Returns the Rpc if a message was received: then call Receive for the next one.
    std::shared_ptr<Rpc> Complete(bool ok) {
      std::shared_ptr<Rpc> rpc = std::move(rpc_);
      (rpc.get()->*handler_)(ok);
      return this == &rpc->read_ ? rpc : nullptr;
    }

   private:
    const Handler handler_;
    std::shared_ptr<Rpc> rpc_;
  };

  Rpc(RpcHost* host, grpc::ServerCompletionQueue* queue);
  ~Rpc() override;

  // Waits for an incoming RPC.
  void Listen();
  // Receives the next message, unless the peer has reached its limits.
  void Receive();
  // Ends a stream of calls: completes the current write, then sends `status`.
  void Close(const grpc::Status& status);
  void Send(grpc::ByteBuffer reply, size_t request_bytes) override;

  grpc::GenericServerContext* context() { return &context_; }
  grpc::GenericServerAsyncReaderWriter* stream() { return &stream_; }
  grpc::ServerCompletionQueue* queue() { return queue_; }

 private:
  void OnIncoming(bool ok);
  void OnDone(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  void StartUnary();
  void StartStream();
  void Reject(const grpc::Status& status);
  // The next six require mu_.
  void CountBytes(int64_t bytes);
  // Breaks off a stream whose peer does not read.
  void Drop();
  void ReadMore();
  void WriteNext();
  void FinishIfDrained();
  bool Full() const;

  RpcHost* const host_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer message_;  // Being read.

  Operation incoming_{&Rpc::OnIncoming};
  Operation done_{&Rpc::OnDone};
  Operation read_{&Rpc::OnRead};
  Operation write_{&Rpc::OnWritten};
  Operation finish_{&Rpc::OnFinished};

  mutable std::mutex mu_;
  bool reading_ = false;      // Guarded by mu_.
  bool writing_ = false;      // Guarded by mu_.
  bool half_closed_ = false;  // The client sends no more. Guarded by mu_.
  bool closing_ = false;      // Only status_ may still be sent. Guarded by mu_.
  bool finished_ = false;     // status_ was sent. Guarded by mu_.
  grpc::Status status_;       // Guarded by mu_.
  int64_t calls_ = 0;         // Calls received but not answered. Guarded by mu_.
  size_t bytes_ = 0;          // Bytes of those calls and of their replies. Guarded by mu_.
  size_t reply_bytes_ = 0;    // Bytes of unsent replies. Guarded by mu_.
  // Replies and the sizes of their requests; the front one is being written. Guarded by mu_.
  std::deque<std::pair<grpc::ByteBuffer, size_t>> replies_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_RPC_H_
