// The interface of the transport library (libseed_transport.so) to the TensorFlow ops.
//
// The transport uses gRPC but not TensorFlow; the ops use TensorFlow but not gRPC. They must not be
// linked into one library, because TensorFlow exports its own gRPC. This header is all they share,
// so it uses only types of the standard library.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_TRANSPORT_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace seed_rl::transport {

// The codes of gRPC, and of absl::Status.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

struct Status {
  Code code = Code::kOk;
  std::string message;

  Status() = default;
  Status(Code code, std::string message) : code(code), message(std::move(message)) {}
  bool ok() const { return code == Code::kOk; }
};

// Element types, numbered as on the wire.
enum class DType : uint8_t {
  kBool = 0,
  kUint8 = 1,
  kInt8 = 2,
  kUint16 = 3,
  kInt16 = 4,
  kUint32 = 5,
  kInt32 = 6,
  kUint64 = 7,
  kInt64 = 8,
  kFloat16 = 9,
  kBfloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kString = 13,
};
constexpr uint8_t kNumDTypes = 14;
constexpr size_t kMaxRank = 16;
// The alignment that TensorFlow's kernels require of a tensor's memory.
constexpr size_t kAlignment = 64;

// A tensor in host memory, elements in C order.
struct Tensor {
  DType dtype = DType::kBool;
  std::vector<int64_t> dims;
  const char* data = nullptr;         // Null if dtype is kString.
  size_t bytes = 0;                   // Size of `data`.
  std::shared_ptr<const void> owner;  // Keeps `data` alive.
  size_t owner_bytes = 0;             // Memory that `owner` keeps; 0: only `data`.
  std::vector<std::string> strings;   // The elements if dtype is kString.
};

// Type and shape of an argument.
struct Spec {
  DType dtype = DType::kBool;
  bool rank_known = true;
  std::vector<int64_t> dims;  // -1: any size.
};

// Called with the results, whose memory is aligned to kAlignment and may be kept; none unless the
// status is OK.
using Done = std::function<void(const Status& status, std::vector<Tensor> results)>;

// A function that a server runs; runs may overlap.
class Function {
 public:
  virtual ~Function() = default;
  // Runs on `arguments`, whose memory is aligned to kAlignment and may be kept. Calls `done` when
  // finished: before it returns if nothing blocks, otherwise later on another thread.
  virtual void Start(std::vector<Tensor> arguments, Done done) = 0;
  // Cancels current and future runs.
  virtual void Cancel() = 0;
};

constexpr int64_t kUnbatched = -1;
constexpr int64_t kDynamicBatch = 0;

// Functions bound under one name, which take turns: each batch goes to the next free one.
struct Binding {
  std::string name;
  std::vector<Spec> arguments;  // Including the leading dimension if batched.
  size_t num_results = 0;
  int64_t batch = kUnbatched;  // Or kDynamicBatch, or the fixed size of a batch.
  bool isolate_errors = false;
  int max_in_flight = 1;  // Concurrent runs of each function.
  std::vector<std::unique_ptr<Function>> functions;
};

struct ServerConfig {
  std::vector<std::string> addresses;  // "host:port" or "unix:/path".
  int64_t max_batch_size = 1024;       // For functions with a dynamic batch.
  double batch_timeout_ms = 0;
  int64_t max_message_bytes = 64 << 20;
  int64_t max_connections = 4096;
  int64_t max_calls_per_peer = 1024;
  int64_t max_bytes_per_peer = 256 << 20;
  int64_t max_bytes = 1 << 30;  // Of all peers.
  std::string token;            // Empty: no authentication.
  std::string tls_certificate;  // PEM; empty: no TLS.
  std::string tls_key;          // PEM.
  double keepalive_s = 20;
  int threads = 0;  // Network threads; 0: depends on the number of cores.
};

class Server {
 public:
  // Shuts down.
  virtual ~Server() = default;
  // Adds functions under one name; the order of Bind calls is their index on the wire. Not after
  // Start.
  virtual Status Bind(Binding binding) = 0;
  // Starts serving. `description`, a JSON object, is the answer to Describe, with the status added.
  // `ports` gets an entry per address (0 for addresses without a port).
  virtual Status Start(const std::string& description, std::vector<int>* ports) = 0;
  // Cancels running and waiting calls, disconnects all clients and joins all threads. Idempotent
  // and thread-safe. The server cannot be restarted.
  virtual void Shutdown() = 0;
  // The answer to Stats, in JSON.
  virtual std::string Stats() = 0;
  // Sets "status" in Describe and Stats, in JSON.
  virtual void SetStatus(const std::string& json) = 0;
};

struct ClientConfig {
  std::string address;
  double connect_timeout_s = 60;
  double call_timeout_s = 0;  // 0: none.
  int64_t max_message_bytes = 64 << 20;
  std::string token;
  bool tls = false;
  std::string tls_ca;    // PEM; empty: the system's certificates.
  std::string tls_cert;  // PEM: the client's own, for a proxy that asks for it; may be empty.
  std::string tls_key;   // PEM, of tls_cert.
  double keepalive_s = 20;
};

class Client {
 public:
  // Closes.
  virtual ~Client() = default;
  // The server's answer to Describe.
  virtual const std::string& description() const = 0;
  // Sends a call and returns its id. `done` is called once, usually on the client's thread, and
  // perhaps before this returns.
  virtual uint64_t Call(uint32_t function, const std::vector<Tensor>& arguments, Done done) = 0;
  // Ends the call with CANCELLED, unless it has already ended.
  virtual void Cancel(uint64_t call_id) = 0;
  // Ends all calls; later ones fail with CANCELLED.
  virtual void Close() = 0;
};

// The two functions that the library exports, with the C names "seed_transport_create_server" and
// "seed_transport_connect".
using CreateServerFn = Server*(const ServerConfig& config);
// Waits for the server; null if `status` is not OK.
using ConnectFn = Client*(const ClientConfig& config, Status* status);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_TRANSPORT_H_
