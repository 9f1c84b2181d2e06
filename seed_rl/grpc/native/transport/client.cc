#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "seed_rl/grpc/native/transport/channel.h"
#include "seed_rl/grpc/native/transport/runtime.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {
namespace {

Status FromGrpc(const grpc::Status& status) {
  return {static_cast<Code>(status.error_code()), status.error_message()};
}

// A channel and its stream of calls. Its thread keeps it alive, because a callback on that thread
// may drop the last reference to the client.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(const ClientConfig& config) : config_(config) {}

  // Waits for the server and gets its description.
  Status Connect() { return transport::Connect(config_, &channel_, &description_); }
  // Opens the stream of calls.
  void Start();
  // Ends all calls and the thread.
  void Close();
  // Joins the thread, unless called on it.
  void Join();

  uint64_t Call(uint32_t function, const std::vector<Tensor>& arguments, Done done);
  void Fail(uint64_t call_id, const Status& status);
  const std::string& description() const { return description_; }

 private:
  struct Pending {
    Done done;
    SteadyClock::time_point deadline;  // If the configuration has one.
  };

  void Loop();
  // Whether more events come.
  bool Handle(void* tag, bool ok);
  void OnMessage(const grpc::ByteBuffer& message);
  void OnEnded(const grpc::Status& grpc_status);
  void FailExpired();
  void FailAll(const Status& status);
  // Removes a pending call and returns its callback; empty if it was not pending.
  Done Remove(uint64_t call_id);

  const ClientConfig config_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string description_;
  std::thread thread_;

  std::mutex mu_;
  CallStream stream_;     // Write and Handle are guarded by mu_; only the thread polls and reads.
  bool closed_ = false;   // Calls fail with broken_. Guarded by mu_.
  Status broken_;         // Guarded by mu_.
  uint64_t next_id_ = 1;  // Guarded by mu_.
  std::unordered_map<uint64_t, Pending> pending_;  // By call id. Guarded by mu_.
  // Of pending_, if the configuration has a timeout. Guarded by mu_.
  std::set<std::pair<SteadyClock::time_point, uint64_t>> deadlines_;
};

// --- Lifecycle.

void Connection::Start() {
  stream_.Start(config_, channel_);
  thread_ = std::thread([self = shared_from_this()] { self->Loop(); });
  pthread_setname_np(thread_.native_handle(), "seed_client");
}

void Connection::Close() {
  FailAll({Code::kCancelled, "client closed"});
  stream_.Cancel();
}

void Connection::Join() {
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

// --- Calls.

uint64_t Connection::Call(uint32_t function, const std::vector<Tensor>& arguments, Done done) {
  std::unique_lock<std::mutex> lock(mu_);
  const uint64_t id = next_id_++;
  lock.unlock();
  FrameWriter writer(Kind::kCall, id, function, arguments.size());
  for (const Tensor& tensor : arguments) writer.Add(tensor);
  grpc::ByteBuffer frame = writer.Finish();
  if (frame.Length() > static_cast<size_t>(config_.max_message_bytes)) {
    done({Code::kResourceExhausted, "The call has " + std::to_string(frame.Length()) +
                                        " bytes, more than max_message_bytes (" +
                                        std::to_string(config_.max_message_bytes) + ")"},
         {});
    return id;
  }
  lock.lock();
  if (closed_) {
    const Status status = broken_;
    lock.unlock();
    done(status, {});
    return id;
  }
  Pending& pending = pending_[id];
  pending.done = std::move(done);
  if (config_.call_timeout_s > 0) {
    pending.deadline = SteadyClock::now() + ToDuration(config_.call_timeout_s);
    deadlines_.emplace(pending.deadline, id);
  }
  stream_.Write(&frame);
  return id;
}

Done Connection::Remove(uint64_t call_id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = pending_.find(call_id);
  if (found == pending_.end()) return nullptr;
  Done done = std::move(found->second.done);
  deadlines_.erase({found->second.deadline, call_id});
  pending_.erase(found);
  return done;
}

void Connection::Fail(uint64_t call_id, const Status& status) {
  if (Done done = Remove(call_id)) done(status, {});
}

void Connection::FailAll(const Status& status) {
  std::unordered_map<uint64_t, Pending> pending;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!closed_) broken_ = status;
    closed_ = true;
    pending.swap(pending_);
    deadlines_.clear();
  }
  for (auto& [id, call] : pending) call.done(status, {});
}

void Connection::FailExpired() {
  std::vector<Done> expired;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const SteadyClock::time_point now = SteadyClock::now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const auto found = pending_.find(deadlines_.begin()->second);
      expired.push_back(std::move(found->second.done));
      pending_.erase(found);
      deadlines_.erase(deadlines_.begin());
    }
  }
  for (const Done& done : expired) {
    done({Code::kDeadlineExceeded, "No answer within the call_timeout_s of " +
                                       std::to_string(config_.call_timeout_s) + " s"},
         {});
  }
}

// --- The thread.

void Connection::Loop() {
  const bool deadlines = config_.call_timeout_s > 0;
  const auto tick = ToDuration(std::min(0.25, config_.call_timeout_s / 8));
  void* tag;
  bool ok;
  while (true) {
    const auto next = deadlines
                          ? stream_.queue.AsyncNext(&tag, &ok, SystemClock::now() + tick)
                          : stream_.queue.AsyncNext(&tag, &ok, gpr_inf_future(GPR_CLOCK_REALTIME));
    if (next == grpc::CompletionQueue::GOT_EVENT && !Handle(tag, ok)) return;
    if (deadlines) FailExpired();
  }
}

bool Connection::Handle(void* tag, bool ok) {
  CallStream::Event event;
  {
    std::lock_guard<std::mutex> lock(mu_);
    event = stream_.Handle(tag, ok);
  }
  if (event == CallStream::Event::kEnded) {
    OnEnded(stream_.status);
    return false;
  }
  if (event == CallStream::Event::kMessage) {
    OnMessage(stream_.message);
    stream_.Read();
  }
  return true;
}

void Connection::OnMessage(const grpc::ByteBuffer& message) {
  Frame frame;
  Status status = frame.Parse(message);
  if (status.ok()) status = frame.CheckStrings();
  if (status.ok() && frame.kind() == Kind::kCall) status = {Code::kInternal, "it is a call"};
  if (Done done = Remove(frame.call_id())) {
    if (!status.ok()) {
      done({Code::kInternal, "Malformed reply: " + status.message}, {});
    } else if (frame.kind() == Kind::kReply) {
      std::vector<Tensor> results;
      try {
        results = frame.Copies();
      } catch (const std::bad_alloc&) {
        status = OutOfMemory();
      }
      done(status, std::move(results));
    } else {
      const Code code = frame.error_code() == 0 ? Code::kUnknown : Code(frame.error_code());
      done({code, frame.message()}, {});
    }
  } else if (frame.call_id() == kUnreadableCallId) {
    // One of our calls will never be answered, and we cannot tell which.
    const bool explained = status.ok() && frame.kind() == Kind::kError;
    FailAll({Code::kInternal, explained ? "The server could not read a call: " + frame.message()
                                        : "The server sent no answer: " + status.message});
    stream_.Cancel();
  }
}

void Connection::OnEnded(const grpc::Status& grpc_status) {
  Status status = FromGrpc(grpc_status);
  // Cancelled, but not by Close: the server reset the stream. gRPC does so if a stream arrives
  // while the server shuts down.
  if (status.ok() || status.code == Code::kCancelled) {
    status = {Code::kUnavailable, "server closed"};
  }
  FailAll(status);
}

class ClientImpl : public Client {
 public:
  explicit ClientImpl(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  ~ClientImpl() override {
    connection_->Close();
    connection_->Join();
  }
  const std::string& description() const override { return connection_->description(); }
  uint64_t Call(uint32_t function, const std::vector<Tensor>& arguments, Done done) override {
    return connection_->Call(function, arguments, std::move(done));
  }
  void Cancel(uint64_t call_id) override {
    connection_->Fail(call_id, {Code::kCancelled, "The call was cancelled"});
  }
  void Close() override { connection_->Close(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Client* seed_transport_connect(
    const ClientConfig& config, Status* status) {
  ConfigureRuntime();
  auto connection = std::make_shared<Connection>(config);
  *status = connection->Connect();
  if (!status->ok()) return nullptr;
  auto client = std::make_unique<ClientImpl>(connection);  // Which joins the thread.
  connection->Start();
  return client.release();
}

}  // namespace seed_rl::transport
