// Collects calls into batches and runs the functions bound under one name on them.
//
// A batch is assembled in place: whoever receives a call reserves rows of the open batch and copies
// the call's tensors to them. Functions run on threads of the batcher, so that the network threads
// never wait. The thread that is free takes what has been collected, and sends the replies itself.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_BATCHER_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_BATCHER_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "seed_rl/grpc/native/transport/buffer_pool.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

// Where a call came from.
class Caller {
 public:
  virtual ~Caller() = default;
  // Sends the reply to a call of `request_bytes`. Thread-safe.
  virtual void Send(grpc::ByteBuffer reply, size_t request_bytes) = 0;
};

using Clock = std::chrono::steady_clock;

struct Call {
  std::shared_ptr<Caller> caller;
  uint64_t id = 0;
  size_t bytes = 0;
  Clock::time_point arrived;
  bool leading = false;  // Whether its tensors have the leading dimension.
  int64_t rows = 1;

  void Fail(const Status& status) const { caller->Send(ErrorFrame(id, status), bytes); }
};

struct BatcherStats {
  int64_t waiting = 0;  // Calls that do not run yet.
  int64_t calls = 0;    // That ran.
  int64_t rows = 0;
  int64_t batches = 0;
  int64_t errors = 0;       // Calls answered with an error.
  double queue_wait_s = 0;  // Sum over calls, from arrival to the start of their run.
  double run_s = 0;         // Sum over batches.
};

class Batcher {
 public:
  Batcher(Binding binding, int64_t max_batch_size, double batch_timeout_ms);
  ~Batcher() { Shutdown(); }

  const std::string& name() const { return binding_.name; }

  void Start();
  // Takes a call; it is answered through `call.caller`, perhaps before this returns.
  void Add(Call call, const Frame& frame);
  // Cancels running functions, fails all waiting calls and returns when the threads have ended.
  void Shutdown();
  BatcherStats stats() const;

 private:
  struct Gather;
  // Some rows of a call in a batch.
  struct Part {
    Call call;
    int64_t first;                   // Row in the batch.
    int64_t rows;                    // Of this part.
    int64_t first_in_call = 0;       // Row in the call.
    std::shared_ptr<Gather> gather;  // If the call has several parts.
  };
  struct Batch {
    std::vector<Tensor> arguments;
    std::vector<char*> memory;  // Of the arguments, to be written; null for strings.
    int64_t rows = 0;
    int copying = 0;  // Parts that are being copied.
    std::vector<Part> parts;
  };
  using BatchPtr = std::shared_ptr<Batch>;

  bool batched() const { return binding_.batch != kUnbatched; }
  bool dynamic() const { return binding_.batch == kDynamicBatch; }
  int64_t capacity() const { return dynamic() ? max_batch_size_ : binding_.batch; }

  // Checks a call's tensors and finds out `call->rows` and `call->leading`.
  Status Check(const Frame& frame, Call* call) const;
  Status CheckShape(const TensorView& tensor, size_t i, const Spec& spec, size_t skip) const;

  void AddAlone(Call call, const Frame& frame);
  void AddToBatches(const Call& call, const Frame& frame);
  BatchPtr NewBatch();
  static void Copy(const Frame& frame, const Part& part, Batch* batch, size_t i);

  // The next four expect mu_ to be held.
  bool HasWork() const;
  // Gives work to a free thread, if there are both; returns what to notify, or null.
  std::condition_variable* Wake();
  BatchPtr Take();
  void WaitForMore(std::unique_lock<std::mutex>* lock, size_t executor);

  void Execute(size_t executor);
  void Run(Batch* batch, size_t executor);
  // Says that a thread's function is free again.
  void Release(size_t executor);
  void Count(const Batch& batch, Clock::time_point start, Clock::time_point end);
  void CountError();
  static std::vector<Tensor> RowsOf(const Batch& batch, const Part& part);
  Status CheckResults(const std::vector<Tensor>& results, int64_t rows) const;
  void Reply(const Part& part, const std::vector<Tensor>& results, int64_t first) const;
  void ReplyPart(const Part& part, const std::vector<Tensor>& results) const;
  static void Fail(const Part& part, const Status& status);

  const Binding binding_;
  const int64_t max_batch_size_;
  const std::chrono::duration<double, std::milli> timeout_;
  std::vector<size_t> row_bytes_;                   // By argument; 0 for strings.
  std::vector<size_t> row_elements_;                // By argument.
  std::vector<std::unique_ptr<BufferPool>> pools_;  // By argument; null for strings.

  mutable std::mutex mu_;
  bool stopped_ = false;            // Guarded by mu_.
  BatchPtr open_;                   // Takes further calls. Guarded by mu_.
  std::deque<BatchPtr> ready_;      // Takes no further calls. Guarded by mu_.
  std::vector<bool> busy_;          // By thread. Guarded by mu_.
  size_t collector_ = kNone;        // The thread that takes the next batch. Guarded by mu_.
  size_t next_ = 0;                 // The thread whose turn it is. Guarded by mu_.
  BatcherStats stats_;              // Guarded by mu_.
  std::condition_variable copied_;  // A batch's `copying` became 0.
  std::vector<std::unique_ptr<std::condition_variable>> wake_;  // By thread.
  std::mutex shutdown_mu_;                                      // Serializes Shutdown.
  std::vector<std::thread> executors_;                          // Guarded by shutdown_mu_.

  static constexpr size_t kNone = ~size_t{0};
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BATCHER_H_
