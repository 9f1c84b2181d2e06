#include "seed_rl/grpc/native/transport/batcher.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

namespace seed_rl::transport {
namespace {

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

size_t Product(const int64_t* dims, size_t rank) {
  size_t product = 1;
  for (size_t i = 0; i < rank; ++i) product *= static_cast<size_t>(dims[i]);
  return product;
}

// The memory of one argument of a batch is reserved at once, though touched only as far as used.
constexpr size_t kMaxArgumentBytes = size_t{1} << 30;

// `wanted`, or what kMaxArgumentBytes allows.
int64_t MaxBatchSize(const Binding& binding, int64_t wanted) {
  size_t size = std::max<int64_t>(1, wanted);
  if (binding.batch != kDynamicBatch) return size;
  for (const Spec& spec : binding.arguments) {
    const size_t row_bytes = Product(spec.dims.data() + 1, spec.dims.size() - 1) *
                             std::max<size_t>(1, ItemSize(spec.dtype));
    if (row_bytes > 0) size = std::min(size, std::max<size_t>(1, kMaxArgumentBytes / row_bytes));
  }
  return size;
}

Status ServerClosed() { return {Code::kUnavailable, "server closed"}; }

// A stranger's booleans may have any value, which C++ does not expect.
void NormalizeBools(char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) data[i] = data[i] != 0;
}

}  // namespace

// The results of a call whose rows went to several batches.
struct Batcher::Gather {
  std::mutex mu;
  int64_t rows_left;            // Guarded by mu.
  Status status;                // The first error. Guarded by mu.
  std::vector<Tensor> results;  // Guarded by mu.
  std::vector<char*> memory;    // Of the results. Guarded by mu.

  explicit Gather(int64_t rows) : rows_left(rows) {}
  void Allocate(const std::vector<Tensor>& like, int64_t rows);
  Status Copy(const std::vector<Tensor>& from, const Part& part);
};

Batcher::Batcher(Binding binding, int64_t max_batch_size, double batch_timeout_ms)
    : binding_(std::move(binding)),
      max_batch_size_(MaxBatchSize(binding_, max_batch_size)),
      timeout_(batch_timeout_ms) {
  const size_t executors = binding_.functions.size() * std::max(1, binding_.max_in_flight);
  for (size_t i = 0; i < executors; ++i) {
    wake_.push_back(std::make_unique<std::condition_variable>());
  }
  busy_.resize(executors, false);
  if (!batched()) return;
  for (const Spec& spec : binding_.arguments) {
    row_elements_.push_back(Product(spec.dims.data() + 1, spec.dims.size() - 1));
    row_bytes_.push_back(row_elements_.back() * ItemSize(spec.dtype));
    pools_.push_back(
        spec.dtype == DType::kString
            ? nullptr
            : std::make_unique<BufferPool>(row_bytes_.back() * capacity(), executors + 2));
  }
}

void Batcher::Start() {
  std::lock_guard<std::mutex> lock(shutdown_mu_);
  for (size_t i = 0; i < busy_.size(); ++i) {
    executors_.emplace_back([this, i] { Execute(i); });
    pthread_setname_np(executors_.back().native_handle(), "seed_run");
  }
}

// --- Arrival of calls.

void Batcher::Add(Call call, const Frame& frame) {
  Status status = Check(frame, &call);
  if (!status.ok()) {
    CountError();
    call.Fail(status);
  } else if (batched()) {
    AddToBatches(call, frame);
  } else {
    AddAlone(std::move(call), frame);
  }
}

Status Batcher::Check(const Frame& frame, Call* call) const {
  const auto& tensors = frame.tensors();
  const auto& specs = binding_.arguments;
  if (tensors.size() != specs.size()) {
    return {Code::kInvalidArgument, "Expects " + std::to_string(specs.size()) + " arguments, but " +
                                        std::to_string(tensors.size()) + " is provided"};
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (tensors[i].dtype != specs[i].dtype) {
      return {Code::kInvalidArgument, "Expects arg[" + std::to_string(i) + "] to be " +
                                          DTypeName(specs[i].dtype) + " but " +
                                          DTypeName(tensors[i].dtype) + " is provided"};
    }
  }
  if (!batched()) {
    for (size_t i = 0; i < specs.size(); ++i) {
      Status status = CheckShape(tensors[i], i, specs[i], 0);
      if (!status.ok()) return status;
    }
    return {};
  }
  call->leading = tensors[0].rank == specs[0].dims.size();
  call->rows = call->leading ? tensors[0].dims[0] : 1;
  for (size_t i = 0; i < specs.size(); ++i) {
    Status status = CheckShape(tensors[i], i, specs[i], call->leading ? 0 : 1);
    if (!status.ok()) return status;
    if (call->leading && tensors[i].dims[0] != call->rows) {
      return {Code::kInvalidArgument,
              "Expects all arguments to have the same leading dimension, but arg[0] has " +
                  std::to_string(call->rows) + " and arg[" + std::to_string(i) + "] has " +
                  std::to_string(tensors[i].dims[0])};
    }
  }
  if (call->rows < 1 || call->rows > capacity()) {
    return {Code::kInvalidArgument, "Expects a leading dimension from 1 to " +
                                        std::to_string(capacity()) + ", but it is " +
                                        std::to_string(call->rows)};
  }
  return {};
}

Status Batcher::CheckShape(const TensorView& tensor, size_t i, const Spec& spec,
                           size_t skip) const {
  if (!spec.rank_known) return {};
  const std::string start = "Expects arg[" + std::to_string(i) + "] to have shape ";
  const std::string had = "but had shape " + ShapeString(tensor.dims, tensor.rank);
  if (tensor.rank != spec.dims.size() - skip) {
    return {Code::kInvalidArgument,
            start + "with " + std::to_string(spec.dims.size()) + " dimension(s), " + had};
  }
  // The leading dimension of a batch is checked by the caller.
  for (size_t d = batched() && skip == 0 ? 1 : 0; d < tensor.rank; ++d) {
    if (spec.dims[d + skip] >= 0 && spec.dims[d + skip] != tensor.dims[d]) {
      const std::string wanted = ShapeString(spec.dims.data() + skip, tensor.rank);
      return {Code::kInvalidArgument, start + wanted + ", " + had};
    }
  }
  return {};
}

void Batcher::AddAlone(Call call, const Frame& frame) {
  auto batch = std::make_shared<Batch>();
  for (const TensorView& view : frame.tensors()) {
    Tensor tensor;
    tensor.dtype = view.dtype;
    tensor.dims = view.Dims();
    if (view.dtype == DType::kString) {
      tensor.strings = view.Strings(0, view.elements);
    } else {
      std::shared_ptr<char> memory = AllocateAligned(view.bytes);
      Cursor(view.payload).Read(memory.get(), view.bytes);
      if (view.dtype == DType::kBool) NormalizeBools(memory.get(), view.bytes);
      tensor.data = memory.get();
      tensor.bytes = view.bytes;
      tensor.owner = std::move(memory);
    }
    batch->arguments.push_back(std::move(tensor));
  }
  batch->rows = 1;
  batch->parts.push_back({std::move(call), 0, 1, 0, nullptr});
  std::unique_lock<std::mutex> lock(mu_);
  if (stopped_) {
    lock.unlock();
    Fail(batch->parts[0], ServerClosed());
    return;
  }
  ready_.push_back(std::move(batch));
  std::condition_variable* wake = Wake();
  lock.unlock();
  if (wake != nullptr) wake->notify_one();
}

void Batcher::AddToBatches(const Call& call, const Frame& frame) {
  std::shared_ptr<Gather> gather;
  int64_t placed = 0;
  std::unique_lock<std::mutex> lock(mu_);
  while (placed < call.rows) {
    if (stopped_) {
      lock.unlock();
      // Rows that are in a batch already are failed by Shutdown.
      Fail({call, 0, call.rows - placed, placed, gather}, ServerClosed());
      return;
    }
    const int64_t left = call.rows - placed;
    if (open_ && dynamic() && open_->rows + left > capacity()) ready_.push_back(std::move(open_));
    if (!open_) open_ = NewBatch();
    BatchPtr batch = open_;
    const int64_t rows = std::min(left, capacity() - batch->rows);
    if (rows < call.rows && !gather) gather = std::make_shared<Gather>(call.rows);
    batch->parts.push_back({call, batch->rows, rows, placed, gather});
    const Part part = batch->parts.back();
    batch->rows += rows;
    placed += rows;
    ++batch->copying;
    if (batch->rows == capacity()) ready_.push_back(std::move(open_));
    lock.unlock();
    for (size_t i = 0; i < batch->arguments.size(); ++i) Copy(frame, part, batch.get(), i);
    lock.lock();
    if (--batch->copying == 0) copied_.notify_all();
    if (std::condition_variable* wake = Wake()) {
      lock.unlock();
      wake->notify_one();
      lock.lock();
    }
  }
}

Batcher::BatchPtr Batcher::NewBatch() {
  auto batch = std::make_shared<Batch>();
  batch->arguments.resize(binding_.arguments.size());
  batch->memory.resize(binding_.arguments.size(), nullptr);
  for (size_t i = 0; i < batch->arguments.size(); ++i) {
    Tensor& tensor = batch->arguments[i];
    tensor.dtype = binding_.arguments[i].dtype;
    tensor.dims = binding_.arguments[i].dims;
    if (tensor.dtype == DType::kString) {
      tensor.strings.resize(row_elements_[i] * capacity());
    } else {
      std::shared_ptr<char> memory = pools_[i]->Acquire();
      batch->memory[i] = memory.get();
      tensor.data = memory.get();
      tensor.owner = std::move(memory);
    }
  }
  return batch;
}

void Batcher::Copy(const Frame& frame, const Part& part, Batch* batch, size_t i) {
  const TensorView& view = frame.tensors()[i];
  if (view.dtype == DType::kString) {
    const size_t elements = view.elements / part.call.rows;
    std::vector<std::string> strings =
        view.Strings(part.first_in_call * elements, part.rows * elements);
    std::move(strings.begin(), strings.end(),
              batch->arguments[i].strings.begin() + part.first * elements);
    return;
  }
  const size_t row_bytes = view.bytes / part.call.rows;
  char* destination = batch->memory[i] + part.first * row_bytes;
  Cursor cursor = view.payload;
  cursor.Skip(part.first_in_call * row_bytes);
  cursor.Read(destination, part.rows * row_bytes);
  if (view.dtype == DType::kBool) NormalizeBools(destination, part.rows * row_bytes);
}

// --- Running.

bool Batcher::HasWork() const { return !ready_.empty() || (dynamic() && open_); }

std::condition_variable* Batcher::Wake() {
  if (stopped_ || !HasWork()) return nullptr;
  // Whoever collects may be waiting for the batch to fill.
  if (collector_ != kNone) return ready_.empty() ? nullptr : wake_[collector_].get();
  for (size_t i = 0; i < busy_.size(); ++i) {
    const size_t executor = (next_ + i) % busy_.size();
    if (busy_[executor]) continue;
    collector_ = executor;
    next_ = executor + 1;
    return wake_[executor].get();
  }
  return nullptr;
}

void Batcher::WaitForMore(std::unique_lock<std::mutex>* lock, size_t executor) {
  if (!dynamic() || timeout_.count() <= 0) return;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
  wake_[executor]->wait_until(*lock, deadline, [this] { return stopped_ || !ready_.empty(); });
}

Batcher::BatchPtr Batcher::Take() {
  if (ready_.empty()) return std::move(open_);
  BatchPtr batch = std::move(ready_.front());
  ready_.pop_front();
  return batch;
}

void Batcher::Execute(size_t executor) {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    wake_[executor]->wait(lock, [&] { return stopped_ || collector_ == executor; });
    if (!stopped_) WaitForMore(&lock, executor);
    if (stopped_) return;
    BatchPtr batch = Take();
    busy_[executor] = true;
    collector_ = kNone;
    if (std::condition_variable* wake = Wake()) wake->notify_one();
    copied_.wait(lock, [&] { return batch->copying == 0; });
    lock.unlock();
    Run(batch.get(), executor);
    batch.reset();
    lock.lock();
  }
}

void Batcher::Run(Batch* batch, size_t executor) {
  Function* function = binding_.functions[executor % binding_.functions.size()].get();
  if (batched()) {
    for (size_t i = 0; i < batch->arguments.size(); ++i) {
      Tensor& tensor = batch->arguments[i];
      tensor.dims[0] = batch->rows;
      tensor.bytes = row_bytes_[i] * batch->rows;
      if (tensor.dtype == DType::kString) tensor.strings.resize(row_elements_[i] * batch->rows);
    }
  }
  const Clock::time_point start = Clock::now();
  std::vector<Tensor> results;
  const bool may_repeat = binding_.isolate_errors && dynamic() && batch->parts.size() > 1;
  Status status =
      function->Run(may_repeat ? batch->arguments : std::move(batch->arguments), &results);
  if (status.ok()) status = CheckResults(results, batch->rows);
  const bool repeat = !status.ok() && may_repeat && status.code != Code::kCancelled;
  Count(*batch, start, Clock::now());
  for (const Part& part : batch->parts) {
    std::vector<Tensor> own_results;
    if (repeat) {
      status = function->Run(RowsOf(*batch, part), &own_results);
      if (status.ok()) status = CheckResults(own_results, part.rows);
    }
    if (!status.ok()) CountError();
    // Before the last reply, so that who calls again at once finds it free, as its turn requires.
    if (&part == &batch->parts.back()) Release(executor);
    if (!status.ok()) {
      Fail(part, status);
    } else {
      Reply(part, repeat ? own_results : results, repeat ? 0 : part.first);
    }
  }
}

void Batcher::Release(size_t executor) {
  std::unique_lock<std::mutex> lock(mu_);
  busy_[executor] = false;
  std::condition_variable* wake = Wake();
  lock.unlock();
  if (wake != nullptr) wake->notify_one();
}

void Batcher::Count(const Batch& batch, Clock::time_point start, Clock::time_point end) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Part& part : batch.parts) {
    if (part.first_in_call == 0) ++stats_.calls;
    stats_.queue_wait_s += Seconds(start - part.call.arrived);
  }
  stats_.rows += batch.rows;
  ++stats_.batches;
  stats_.run_s += Seconds(end - start);
}

void Batcher::CountError() {
  std::lock_guard<std::mutex> lock(mu_);
  ++stats_.errors;
}

std::vector<Tensor> Batcher::RowsOf(const Batch& batch, const Part& part) {
  std::vector<Tensor> rows;
  for (const Tensor& tensor : batch.arguments) {
    Tensor& copy = rows.emplace_back();
    copy.dtype = tensor.dtype;
    copy.dims = tensor.dims;
    copy.dims[0] = part.rows;
    if (tensor.dtype == DType::kString) {
      const size_t elements = tensor.strings.size() / batch.rows;
      const auto first = tensor.strings.begin() + part.first * elements;
      copy.strings.assign(first, first + part.rows * elements);
    } else {
      // Copied, because rows inside a batch are not aligned.
      const size_t row_bytes = tensor.bytes / batch.rows;
      copy.bytes = part.rows * row_bytes;
      std::shared_ptr<char> memory = AllocateAligned(copy.bytes);
      std::memcpy(memory.get(), tensor.data + part.first * row_bytes, copy.bytes);
      copy.data = memory.get();
      copy.owner = std::move(memory);
    }
  }
  return rows;
}

Status Batcher::CheckResults(const std::vector<Tensor>& results, int64_t rows) const {
  if (results.size() != binding_.num_results) {
    return {Code::kInternal, "The function returned " + std::to_string(results.size()) +
                                 " tensors, not " + std::to_string(binding_.num_results)};
  }
  for (const Tensor& result : results) {
    if (result.dims.size() > kMaxRank) {
      return {Code::kInvalidArgument, "Output has more than 16 dimensions"};
    }
    if (!batched()) continue;
    if (result.dims.empty()) {
      return {Code::kInvalidArgument, "Output must be at least rank 1 when batching is enabled"};
    }
    if (result.dims[0] != rows) {
      return {Code::kInvalidArgument,
              "Output must have the leading dimension " + std::to_string(rows) +
                  " of the arguments when batching is enabled, but had shape " +
                  ShapeString(result.dims.data(), result.dims.size())};
    }
  }
  return {};
}

// --- Replies.

void Batcher::Reply(const Part& part, const std::vector<Tensor>& results, int64_t first) const {
  if (part.gather) {
    ReplyPart(part, results);
    return;
  }
  FrameWriter writer(Kind::kReply, part.call.id, 0, results.size());
  for (const Tensor& result : results) {
    if (!batched()) {
      writer.Add(result);
      continue;
    }
    int64_t dims[kMaxRank];
    const size_t skip = part.call.leading ? 0 : 1;
    const size_t rank = result.dims.size() - skip;
    std::copy(result.dims.begin() + skip, result.dims.end(), dims);
    if (part.call.leading) dims[0] = part.rows;
    const size_t elements = Product(result.dims.data() + 1, result.dims.size() - 1);
    if (result.dtype == DType::kString) {
      writer.AddStrings(dims, rank, result.strings.data() + first * elements, part.rows * elements);
    } else {
      const size_t row_bytes = elements * ItemSize(result.dtype);
      writer.Add(result.dtype, dims, rank, result.data + first * row_bytes, part.rows * row_bytes,
                 result.owner);
    }
  }
  part.call.caller->Send(writer.Finish(), part.call.bytes);
}

void Batcher::ReplyPart(const Part& part, const std::vector<Tensor>& results) const {
  Gather& gather = *part.gather;
  {
    std::lock_guard<std::mutex> lock(gather.mu);
    if (gather.results.empty()) gather.Allocate(results, part.call.rows);
    Status status = gather.Copy(results, part);
    if (gather.status.ok()) gather.status = status;
    gather.rows_left -= part.rows;
    if (gather.rows_left > 0) return;
  }
  // This was the last part, so nobody else uses `gather` any more.
  if (!gather.status.ok()) {
    part.call.Fail(gather.status);
    return;
  }
  const Part whole = {part.call, 0, part.call.rows, 0, nullptr};
  Reply(whole, gather.results, 0);
}

void Batcher::Fail(const Part& part, const Status& status) {
  if (part.gather) {
    std::lock_guard<std::mutex> lock(part.gather->mu);
    if (part.gather->status.ok()) part.gather->status = status;
    part.gather->rows_left -= part.rows;
    if (part.gather->rows_left > 0) return;
  }
  part.call.Fail(part.gather ? part.gather->status : status);
}

void Batcher::Gather::Allocate(const std::vector<Tensor>& like, int64_t rows) {
  for (const Tensor& tensor : like) {
    Tensor& result = results.emplace_back();
    result.dtype = tensor.dtype;
    result.dims = tensor.dims;
    result.dims[0] = rows;
    const size_t elements = Product(result.dims.data(), result.dims.size());
    result.bytes = elements * ItemSize(result.dtype);
    std::shared_ptr<char> data = AllocateAligned(result.bytes);
    if (result.dtype == DType::kString) result.strings.resize(elements);
    memory.push_back(data.get());
    result.data = data.get();
    result.owner = std::move(data);
  }
}

Status Batcher::Gather::Copy(const std::vector<Tensor>& from, const Part& part) {
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t rank = from[i].dims.size();
    if (rank != results[i].dims.size() ||
        !std::equal(from[i].dims.begin() + 1, from[i].dims.end(), results[i].dims.begin() + 1)) {
      return {Code::kInvalidArgument, "Output must have the same shape in every batch"};
    }
    const size_t elements = Product(from[i].dims.data() + 1, rank - 1);
    if (from[i].dtype == DType::kString) {
      const auto first = from[i].strings.begin() + part.first * elements;
      std::copy(first, first + part.rows * elements,
                results[i].strings.begin() + part.first_in_call * elements);
    } else {
      const size_t row_bytes = elements * ItemSize(from[i].dtype);
      std::memcpy(memory[i] + part.first_in_call * row_bytes, from[i].data + part.first * row_bytes,
                  part.rows * row_bytes);
    }
  }
  return {};
}

// --- End.

void Batcher::Shutdown() {
  std::lock_guard<std::mutex> shutdown_lock(shutdown_mu_);
  std::deque<BatchPtr> waiting;
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    for (auto& wake : wake_) wake->notify_all();
  }
  for (const auto& function : binding_.functions) function->Cancel();
  for (std::thread& executor : executors_) executor.join();
  executors_.clear();
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting.swap(ready_);
    if (open_) waiting.push_back(std::move(open_));
  }
  for (const BatchPtr& batch : waiting) {
    for (const Part& part : batch->parts) Fail(part, ServerClosed());
  }
}

BatcherStats Batcher::stats() const {
  std::lock_guard<std::mutex> lock(mu_);
  BatcherStats stats = stats_;
  for (const BatchPtr& batch : ready_) stats.waiting += batch->parts.size();
  if (open_) stats.waiting += open_->parts.size();
  return stats;
}

}  // namespace seed_rl::transport
