// Collects calls into batches and runs the functions bound under one name on them.
//
// Batches are assembled in place: the thread that receives a call reserves rows of the open batch
// and copies the call's tensors into them. Functions run on the batcher's threads, so that network
// threads never wait: a free thread takes what has been collected and sends the replies itself.
//
// If an allocation fails, the calls concerned fail with RESOURCE_EXHAUSTED.

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

#include "seed_rl/grpc/native/transport/batch.h"
#include "seed_rl/grpc/native/transport/signature.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

struct BatcherStats {
  int64_t waiting = 0;  // Calls that have not started.
  int64_t calls = 0;    // Calls that ran.
  int64_t rows = 0;
  int64_t batches = 0;
  int64_t answered = 0;     // Calls answered with results.
  int64_t errors = 0;       // Calls answered with an error.
  std::string last_error;   // The newest of them.
  double queue_wait_s = 0;  // Sum over calls, from arrival to the start of their run.
  double run_s = 0;         // Sum over batches.
};

class Batcher {
 public:
  Batcher(Binding binding, int64_t max_batch_size, double batch_timeout_ms);
  ~Batcher() { Shutdown(); }

  const std::string& name() const { return binding_.name; }

  void Start();
  // Adds a call, which is answered through `call.caller`, perhaps before this returns. Dispatch
  // must follow.
  void Add(Call call, const Frame& frame);
  // Wakes a thread to run the added calls. Call it once there is nothing more to add, so that calls
  // that arrive together run together.
  void Dispatch();
  // Cancels running functions, fails all waiting calls and joins the threads.
  void Shutdown();
  BatcherStats stats() const;

 private:
  using BatchPtr = std::shared_ptr<Batch>;

  // These throw std::bad_alloc only if the call has not been added.
  void AddAlone(const Call& call, const Frame& frame);
  void AddToBatches(const Call& call, const Frame& frame);

  // The next six require mu_.
  // Reserves as many of a call's rows from `placed` on as a batch takes, as `part` of that batch.
  // Throws std::bad_alloc, and has then reserved nothing.
  BatchPtr Reserve(const Call& call, int64_t placed, std::shared_ptr<Gather>* gather, Part* part);
  bool HasWork() const;
  // The next free executor in turn, or kNone.
  size_t NextFree();
  // Assigns work, if any, to a free executor's thread, if any; returns what to notify, or null.
  std::condition_variable* Wake();
  BatchPtr Take();
  void WaitForMore(std::unique_lock<std::mutex>* lock, size_t executor);

  // The loop of an executor's thread.
  void Execute(size_t executor);
  Function* function(size_t executor) const {
    return binding_.functions[executor % binding_.functions.size()].get();
  }
  // Runs a batch and returns when it has been answered.
  void Run(Batch* batch, size_t executor);
  // Answers the parts of a batch from `begin` to before `end`: runs their rows again, in groups
  // until it has found the faulty calls. Returns whether there are none.
  bool Repeat(const Batch& batch, size_t begin, size_t end, size_t executor);
  // The same, for parts that have failed together.
  void Split(const Batch& batch, size_t begin, size_t end, size_t executor);
  // Runs an executor's function and checks its results.
  Status RunChecked(size_t executor, std::vector<Tensor> arguments, int64_t rows,
                    std::vector<Tensor>* results) const;
  // Answers these parts; `results` begins with the first one's rows. Releases the executor before
  // the batch's last reply.
  void AnswerAll(const Batch& batch, size_t begin, size_t end, const Status& status,
                 const std::vector<Tensor>& results, size_t executor);
  // Returns whether it sent results.
  bool Answer(const Part& part, const Status& status, const std::vector<Tensor>& results,
              int64_t first);
  // Marks an executor as free, and wakes a thread if there is work.
  void Release(size_t executor);
  void Count(const Batch& batch, Clock::time_point start, Clock::time_point end);
  void CountError(const Status& status);

  const Binding binding_;
  const std::chrono::duration<double, std::milli> timeout_;
  const Signature signature_;
  const BatchFactory batches_;

  mutable std::mutex mu_;
  bool stopped_ = false;        // Guarded by mu_.
  BatchPtr open_;               // Accepts further calls. Guarded by mu_.
  std::deque<BatchPtr> ready_;  // Accept no further calls. Guarded by mu_.
  std::vector<bool> busy_;      // By executor. Guarded by mu_.
  size_t collector_ = kNone;    // The executor whose thread takes the next batch. Guarded by mu_.
  size_t next_ = 0;             // The next executor in turn. Guarded by mu_.
  BatcherStats stats_;          // Guarded by mu_.
  std::condition_variable copied_;                              // A batch's `copying` became 0.
  std::vector<std::unique_ptr<std::condition_variable>> wake_;  // By executor.
  std::mutex shutdown_mu_;                                      // Serializes Shutdown.
  std::vector<std::thread> threads_;                            // Guarded by shutdown_mu_.

  static constexpr size_t kNone = ~size_t{0};
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BATCHER_H_
