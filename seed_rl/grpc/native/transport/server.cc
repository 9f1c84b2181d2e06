#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "seed_rl/grpc/native/transport/batcher.h"
#include "seed_rl/grpc/native/transport/builder.h"
#include "seed_rl/grpc/native/transport/listener.h"
#include "seed_rl/grpc/native/transport/rpc.h"
#include "seed_rl/grpc/native/transport/runtime.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {
namespace {

constexpr char kStatsMethod[] = "/seed_rl.Inference/Stats";
constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
constexpr char kServing[] = "\x08\x01";  // HealthCheckResponse{status: SERVING}
constexpr char kServerClosed[] = "server closed";
// How long Shutdown waits for pending writes.
constexpr auto kShutdownGrace = std::chrono::seconds(1);

// Limits how long calls wait for others that arrive with them.
constexpr int kMaxEventsBeforeDispatch = 64;

// Compares in constant time, so that timing does not reveal a partial match.
bool EqualSecrets(const std::string& a, grpc::string_ref b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < b.size(); ++i) {
    difference |=
        static_cast<unsigned char>(b.data()[i]) ^ static_cast<unsigned char>(a[i % a.size()]);
  }
  return difference == 0;
}

std::string JsonString(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// In any locale: the program's may write a comma.
std::string JsonNumber(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

class ServerImpl : public Server, public RpcHost {
 public:
  explicit ServerImpl(const ServerConfig& config) : config_(config) {}
  ~ServerImpl() override;

  Status Bind(Binding binding) override;
  Status Start(const std::string& description, std::vector<int>* ports) override;
  void Shutdown() override;
  std::string Stats() override;
  void SetStatus(const std::string& json) override;

  void RpcBegins() override;
  void RpcEnds() override;
  void Request(Rpc* rpc, void* tag) override;
  void Accept(grpc::ServerCompletionQueue* queue) override;
  grpc::Status Authorize(const grpc::GenericServerContext& context) override;
  std::function<std::string()> Answer(const std::string& method) override;
  grpc::Status OpenStream(const std::shared_ptr<Rpc>& rpc) override;
  void CloseStream(const std::shared_ptr<Rpc>& rpc) override;
  void Receive(const std::shared_ptr<Rpc>& rpc, const grpc::ByteBuffer& message) override;
  int64_t max_calls_per_peer() const override { return config_.max_calls_per_peer; }
  size_t max_bytes_per_peer() const override { return config_.max_bytes_per_peer; }
  size_t MaxUnsentBytes() override;
  void AddUnansweredBytes(int64_t bytes) override { unanswered_bytes_ += bytes; }
  bool TooManyBytes() const override { return unanswered_bytes_ >= config_.max_bytes; }

 private:
  // Starts gRPC with the listener's connections.
  Status StartGrpc(std::vector<int>* ports);
  // Whether this is a child of the process that started the server, and so has none of its threads.
  bool IsForked() const { return started_by_ != 0 && started_by_ != getpid(); }
  int NumThreads() const;
  // The description with the status, so that clients need no second request.
  std::string Describe();
  // The loop of a network thread.
  void Serve(grpc::ServerCompletionQueue* queue);

  const ServerConfig config_;
  // Fixed by Start.
  std::string description_;
  std::vector<std::unique_ptr<Batcher>> batchers_;  // By function index. Changed under mu_.
  size_t max_call_bytes_ = 0;
  Clock::time_point started_at_;        // Guarded by mu_.
  std::unique_ptr<Listener> listener_;  // Guarded by lifecycle_mu_.
  std::unique_ptr<grpc::AsyncGenericService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::vector<std::thread> threads_;  // One per queue.

  std::atomic<int64_t> messages_rejected_{0};
  // Of unanswered calls and unsent replies of all peers. At max_bytes, each may still have one.
  std::atomic<int64_t> unanswered_bytes_{0};
  std::atomic<pid_t> started_by_{0};
  std::mutex lifecycle_mu_;  // Serializes Bind, Start and Shutdown.
  bool started_ = false;     // Guarded by lifecycle_mu_.
  std::mutex mu_;
  bool closing_ = false;                    // Guarded by mu_.
  std::set<std::shared_ptr<Rpc>> streams_;  // Guarded by mu_.
  int64_t rpcs_ = 0;                        // Number of Rpcs. Guarded by mu_.
  std::condition_variable no_rpcs_;         // `rpcs_` became 0.
  std::string status_ = "{}";               // Guarded by mu_.
};

// --- Lifecycle.

Status ServerImpl::Bind(Binding binding) {
  std::lock_guard<std::mutex> lock(lifecycle_mu_);
  if (started_) return {Code::kInvalidArgument, "Server is already started"};
  for (const auto& batcher : batchers_) {
    if (batcher->name() == binding.name) {
      return {Code::kInvalidArgument, "Function '" + binding.name + "' was bound twice."};
    }
  }
  max_call_bytes_ = std::max(max_call_bytes_, MaxCallBytes(binding, config_.max_batch_size));
  auto batcher = std::make_unique<Batcher>(std::move(binding), config_.max_batch_size,
                                           config_.batch_timeout_ms);
  std::lock_guard<std::mutex> stats_lock(mu_);  // Stats may be asked for before Start.
  batchers_.push_back(std::move(batcher));
  return {};
}

int ServerImpl::NumThreads() const {
  if (config_.threads > 0) return config_.threads;
  return std::clamp<int>(std::thread::hardware_concurrency() / 4, 1, 4);
}

ServerImpl::~ServerImpl() {
  if (!IsForked()) {
    Shutdown();
    return;
  }
  // All of it belongs to the parent; destroying it would wait for threads that are not here.
  for (auto& batcher : batchers_) static_cast<void>(batcher.release());
  for (auto& queue : queues_) static_cast<void>(queue.release());
  for (auto& thread : threads_) new std::thread(std::move(thread));
  static_cast<void>(listener_.release());
  static_cast<void>(server_.release());
  static_cast<void>(service_.release());
}

Status ServerImpl::StartGrpc(std::vector<int>* ports) {
  listener_ = std::make_unique<Listener>(
      config_.max_connections, std::chrono::milliseconds(int64_t(2000 * config_.keepalive_s)));
  Status status = listener_->Listen(config_.addresses, ports);
  if (!status.ok()) return status;
  grpc::ServerBuilder builder;
  SetChannelArguments(config_, max_call_bytes_, &builder);
  service_ = std::make_unique<grpc::AsyncGenericService>();
  builder.RegisterAsyncGenericService(service_.get());
  for (int i = 0; i < NumThreads(); ++i) queues_.push_back(builder.AddCompletionQueue());
  listener_->AddTo(&builder, TcpCredentials(config_));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return {
        Code::kUnavailable,
        std::string("gRPC could not start the server") +
            (config_.tls_certificate.empty() ? "" : "; is the TLS certificate or key invalid?")};
  }
  return {};
}

Status ServerImpl::Start(const std::string& description, std::vector<int>* ports) {
  std::lock_guard<std::mutex> lock(lifecycle_mu_);
  if (started_) return {Code::kInvalidArgument, "Server is already started"};
  if (batchers_.empty()) return {Code::kUnavailable, "No function was bound"};
  description_ = description;
  {
    std::lock_guard<std::mutex> lock(mu_);
    started_at_ = Clock::now();
  }
  started_by_ = getpid();
  Status status = StartGrpc(ports);
  if (!status.ok()) {
    for (auto& queue : queues_) {
      queue->Shutdown();
      void* tag;
      bool ok;
      while (queue->Next(&tag, &ok)) {
      }
    }
    queues_.clear();
    listener_->Stop();
    return status;
  }
  started_ = true;
  for (auto& batcher : batchers_) batcher->Start();
  for (auto& queue : queues_) {
    Accept(queue.get());
    threads_.emplace_back([this, queue = queue.get()] { Serve(queue); });
    pthread_setname_np(threads_.back().native_handle(), "seed_net");
  }
  listener_->Start();
  return {};
}

void ServerImpl::Serve(grpc::ServerCompletionQueue* queue) {
  const auto at_once = gpr_time_0(GPR_CLOCK_REALTIME);
  const auto never = gpr_inf_future(GPR_CLOCK_REALTIME);
  void* tag;
  bool ok;
  std::vector<std::shared_ptr<Rpc>> received;
  while (true) {
    // Handle all available events before functions are run, for larger batches.
    int events = 0;
    auto next = queue->AsyncNext(&tag, &ok, never);
    while (next == grpc::CompletionQueue::GOT_EVENT) {
      auto rpc = static_cast<Rpc::Operation*>(tag)->Complete(ok);
      if (rpc) received.push_back(std::move(rpc));
      if (++events == kMaxEventsBeforeDispatch) break;
      next = queue->AsyncNext(&tag, &ok, at_once);
    }
    for (auto& batcher : batchers_) batcher->Dispatch();
    // Not earlier: a read grants the sender more flow control window, in a packet of its own unless
    // it can travel with a reply.
    for (const auto& rpc : received) rpc->Receive();
    received.clear();
    if (next == grpc::CompletionQueue::SHUTDOWN) return;
  }
}

void ServerImpl::Shutdown() {
  if (IsForked()) return;
  std::lock_guard<std::mutex> lock(lifecycle_mu_);
  if (listener_ != nullptr) listener_->Stop();
  std::set<std::shared_ptr<Rpc>> streams;
  {
    std::lock_guard<std::mutex> lock(mu_);
    closing_ = true;
    streams.swap(streams_);
  }
  for (const auto& rpc : streams) rpc->Close({grpc::StatusCode::UNAVAILABLE, kServerClosed});
  streams.clear();
  for (auto& batcher : batchers_) batcher->Shutdown();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  {
    // No operation may be started on a queue after its shutdown.
    std::unique_lock<std::mutex> lock(mu_);
    no_rpcs_.wait(lock, [this] { return rpcs_ == 0; });
  }
  for (auto& queue : queues_) queue->Shutdown();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  server_.reset();
  queues_.clear();
}

// --- Incoming RPCs.

void ServerImpl::RpcBegins() {
  std::lock_guard<std::mutex> lock(mu_);
  ++rpcs_;
}

void ServerImpl::RpcEnds() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--rpcs_ == 0) no_rpcs_.notify_all();
}

void ServerImpl::Request(Rpc* rpc, void* tag) {
  service_->RequestCall(rpc->context(), rpc->stream(), rpc->queue(), rpc->queue(), tag);
}

void ServerImpl::Accept(grpc::ServerCompletionQueue* queue) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (closing_) return;
  }
  // If the server closes now, gRPC completes the request immediately as failed.
  std::make_shared<Rpc>(this, queue)->Listen();
}

grpc::Status ServerImpl::Authorize(const grpc::GenericServerContext& context) {
  // Health probes of clusters cannot send metadata, and reveal nothing.
  if (config_.token.empty() || context.method() == kHealthMethod) return grpc::Status::OK;
  const auto found = context.client_metadata().find("authorization");
  if (found != context.client_metadata().end() &&
      EqualSecrets("Bearer " + config_.token, found->second)) {
    return grpc::Status::OK;
  }
  return {grpc::StatusCode::UNAUTHENTICATED,
          "The server requires a token; the client's is missing or wrong"};
}

std::function<std::string()> ServerImpl::Answer(const std::string& method) {
  if (method == kDescribeMethod) return [this] { return Describe(); };
  if (method == kStatsMethod) return [this] { return Stats(); };
  if (method == kHealthMethod) return [] { return std::string(kServing); };
  return nullptr;
}

grpc::Status ServerImpl::OpenStream(const std::shared_ptr<Rpc>& rpc) {
  std::lock_guard<std::mutex> lock(mu_);
  if (closing_) return {grpc::StatusCode::UNAVAILABLE, kServerClosed};
  if (static_cast<int64_t>(streams_.size()) >= config_.max_connections) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "The server already has " +
                                                      std::to_string(config_.max_connections) +
                                                      " connections; raise max_connections"};
  }
  streams_.insert(rpc);
  return grpc::Status::OK;
}

void ServerImpl::CloseStream(const std::shared_ptr<Rpc>& rpc) {
  std::lock_guard<std::mutex> lock(mu_);
  streams_.erase(rpc);
}

size_t ServerImpl::MaxUnsentBytes() {
  const size_t limit = config_.max_bytes_per_peer;
  if (!TooManyBytes()) return limit;
  // Accepted calls keep filling memory with their replies, so clients that do not read and hold
  // more than their share are disconnected.
  std::lock_guard<std::mutex> lock(mu_);
  const size_t share = config_.max_bytes / std::max<size_t>(1, streams_.size());
  return std::clamp<size_t>(share, 1, limit);  // A stream may always have one reply.
}

void ServerImpl::Receive(const std::shared_ptr<Rpc>& rpc, const grpc::ByteBuffer& message) {
  Frame frame;
  Status status = frame.Parse(message);
  Call call;
  call.arrived = Clock::now();
  call.caller = rpc;
  call.id = frame.call_id();
  call.bytes = message.Length();
  if (status.ok() && frame.kind() != Kind::kCall) {
    status = {Code::kInvalidArgument, "Malformed frame: servers accept only calls"};
  }
  if (status.ok() && frame.function() >= batchers_.size()) {
    status = {Code::kInvalidArgument, "There is no function " + std::to_string(frame.function()) +
                                          "; the server has " + std::to_string(batchers_.size())};
  }
  if (status.ok()) {
    batchers_[frame.function()]->Add(std::move(call), frame);
    return;
  }
  ++messages_rejected_;
  call.Fail(status);
}

// --- Statistics.

std::string ServerImpl::Describe() {
  std::lock_guard<std::mutex> lock(mu_);
  return description_.substr(0, description_.rfind('}')) + ",\"status\":" + status_ + "}";
}

std::string ServerImpl::Stats() {
  std::vector<const Batcher*> batchers;
  {
    // Not while asking batchers: one that drops a client's last call takes mu_ under its own lock.
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& batcher : batchers_) batchers.push_back(batcher.get());
  }
  std::string functions;
  for (const Batcher* batcher : batchers) {
    const BatcherStats stats = batcher->stats();
    const double calls = std::max<int64_t>(1, stats.calls);
    const double batches = std::max<int64_t>(1, stats.batches);
    if (!functions.empty()) functions += ",";
    functions += JsonString(batcher->name()) + ":{\"calls\":" + std::to_string(stats.calls) +
                 ",\"rows\":" + std::to_string(stats.rows) +
                 ",\"batches\":" + std::to_string(stats.batches) +
                 ",\"mean_batch\":" + JsonNumber(stats.rows / batches) +
                 ",\"queue_wait_us\":" + JsonNumber(stats.queue_wait_s / calls * 1e6) +
                 ",\"run_us\":" + JsonNumber(stats.run_s / batches * 1e6) +
                 ",\"answered\":" + std::to_string(stats.answered) +
                 ",\"errors\":" + std::to_string(stats.errors) +
                 ",\"last_error\":" + JsonString(stats.last_error) +
                 ",\"waiting\":" + std::to_string(stats.waiting) + "}";
  }
  std::lock_guard<std::mutex> lock(mu_);
  const double uptime = started_at_ == Clock::time_point()
                            ? 0
                            : std::chrono::duration<double>(Clock::now() - started_at_).count();
  return "{\"uptime_s\":" + JsonNumber(uptime) +
         ",\"connections\":" + std::to_string(streams_.size()) + ",\"functions\":{" + functions +
         "},\"messages_rejected\":" + std::to_string(messages_rejected_) +
         ",\"status\":" + status_ + "}";
}

void ServerImpl::SetStatus(const std::string& json) {
  std::lock_guard<std::mutex> lock(mu_);
  status_ = json;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Server* seed_transport_create_server(
    const ServerConfig& config) {
  ConfigureRuntime();
  return new ServerImpl(config);
}

}  // namespace seed_rl::transport
