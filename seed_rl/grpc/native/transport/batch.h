// Batches of calls: copies rows from request messages into batches and from results into replies.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_BATCH_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_BATCH_H_

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "seed_rl/grpc/native/transport/buffer_pool.h"
#include "seed_rl/grpc/native/transport/signature.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

using Clock = std::chrono::steady_clock;

// The sender of a call.
class Caller {
 public:
  virtual ~Caller() = default;
  // Sends the reply to a call of `request_bytes`. Thread-safe.
  virtual void Send(grpc::ByteBuffer reply, size_t request_bytes) = 0;
};

struct Call {
  std::shared_ptr<Caller> caller;
  uint64_t id = 0;
  size_t bytes = 0;
  Clock::time_point arrived;
  int64_t rows = 1;
  bool leading = false;  // Whether its tensors have the batch dimension.

  void Fail(const Status& status) const { caller->Send(ErrorFrame(id, status), bytes); }
};

class Gather;

// Rows of a call that are in the same batch.
struct Part {
  Call call;
  int64_t first = 0;               // First row in the batch.
  int64_t rows = 1;                // Number of rows.
  int64_t first_in_call = 0;       // First row in the call.
  std::shared_ptr<Gather> gather;  // Collects the results if the call has several parts.

  // Sends the part's results, which start at row `first` of `results`, or keeps them until the
  // call's other parts are done. `batched`: whether results have the batch dimension. Returns what
  // it sent: OK, or the error of another part or of an allocation; nothing if it keeps them.
  std::optional<Status> Reply(const std::vector<Tensor>& results, int64_t first,
                              bool batched) const;
  // Sends an error, once for all parts; returns whether it did.
  bool Fail(const Status& status) const;

 private:
  grpc::ByteBuffer ReplyFrame(const std::vector<Tensor>& results, int64_t first,
                              bool batched) const;
};

std::shared_ptr<Gather> NewGather(int64_t rows);

struct Batch {
  std::vector<Part> parts;
  int64_t rows = 0;
  int copying = 0;      // Number of parts being copied.
  bool broken = false;  // A part could not be copied.
  std::vector<Tensor> arguments;
  std::vector<char*> memory;  // Writable memory of the arguments; null for strings.

  // Copies the rows of a part into the batch; several parts may be copied concurrently. Throws
  // std::bad_alloc if there are strings.
  void Copy(const Frame& frame, const Part& part);
  // Returns aligned copies of some rows. The batch must be sealed.
  std::vector<Tensor> Rows(int64_t first, int64_t count) const;
};

// Creates the batches of a function.
class BatchFactory {
 public:
  // `max_free`: number of unused batches whose memory is kept.
  BatchFactory(const Signature* signature, size_t max_free);

  // A batch without rows, with memory for as many as the signature allows.
  std::shared_ptr<Batch> Empty() const;
  // A batch of one call, for functions that are not batched.
  static std::shared_ptr<Batch> Single(const Call& call, const Frame& frame);
  // Sets the arguments' sizes to the batch's number of rows.
  void Seal(Batch* batch) const;

 private:
  const Signature* const signature_;
  std::vector<std::unique_ptr<BufferPool>> pools_;  // By argument; null for strings.
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_BATCH_H_
