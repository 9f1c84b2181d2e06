#include "seed_rl/grpc/native/transport/batcher.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <new>
#include <utility>

namespace seed_rl::transport {
namespace {

// Up to this many calls that failed together are rerun one by one: halving such a group again does
// not pay.
constexpr size_t kRunAlone = 4;
// Characters of an error that are kept for Stats.
constexpr size_t kErrorLength = 300;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Status ServerClosed() { return {Code::kUnavailable, "server closed"}; }

size_t NumExecutors(const Binding& binding) {
  return binding.functions.size() * std::max(1, binding.max_in_flight);
}

// The result of `run()`, or an error if an allocation fails.
template <typename Run>
Status OrOutOfMemory(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

// Runs a function and waits until it has finished. Throws std::bad_alloc.
Status RunAndWait(Function* function, std::vector<Tensor> arguments, std::vector<Tensor>* results) {
  // Shared, because a run that failed to start may still call back.
  auto outcome = std::make_shared<std::promise<std::pair<Status, std::vector<Tensor>>>>();
  function->Start(std::move(arguments),
                  [outcome](const Status& status, std::vector<Tensor> tensors) {
                    outcome->set_value({status, std::move(tensors)});
                  });
  auto [status, tensors] = outcome->get_future().get();
  *results = std::move(tensors);
  return status;
}

}  // namespace

Batcher::Batcher(Binding binding, int64_t max_batch_size, double batch_timeout_ms)
    : binding_(std::move(binding)),
      timeout_(batch_timeout_ms),
      signature_(binding_, max_batch_size),
      // Besides the running batches, one is being filled and one may be held by results.
      batches_(&signature_, NumExecutors(binding_) + 2) {
  for (size_t i = 0; i < NumExecutors(binding_); ++i) {
    wake_.push_back(std::make_unique<std::condition_variable>());
  }
  busy_.resize(wake_.size(), false);
}

void Batcher::Start() {
  std::lock_guard<std::mutex> lock(shutdown_mu_);
  for (size_t i = 0; i < wake_.size(); ++i) {
    threads_.emplace_back([this, i] { Execute(i); });
    pthread_setname_np(threads_.back().native_handle(), "seed_run");
  }
}

// --- Adding calls.

void Batcher::Add(Call call, const Frame& frame) {
  Status status = signature_.CheckCall(frame, &call.rows, &call.leading);
  if (status.ok()) {
    try {
      signature_.batched() ? AddToBatches(call, frame) : AddAlone(call, frame);
      return;
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
  }
  CountError(status);
  call.Fail(status);
}

void Batcher::AddAlone(const Call& call, const Frame& frame) {
  BatchPtr batch = BatchFactory::Single(call, frame);
  std::unique_lock<std::mutex> lock(mu_);
  if (!stopped_) {
    ready_.push_back(std::move(batch));
    return;
  }
  lock.unlock();
  call.Fail(ServerClosed());
}

void Batcher::AddToBatches(const Call& call, const Frame& frame) {
  std::shared_ptr<Gather> gather;
  int64_t placed = 0;
  std::unique_lock<std::mutex> lock(mu_);
  while (placed < call.rows) {
    Status status = stopped_ ? ServerClosed() : Status();
    Part part;
    BatchPtr batch;
    try {
      if (status.ok()) batch = Reserve(call, placed, &gather, &part);
    } catch (const std::bad_alloc&) {
      if (placed == 0) throw;
      status = OutOfMemory();
    }
    if (!status.ok()) {
      lock.unlock();
      // The rows that are already in a batch are answered with it, or by Shutdown.
      Part{call, 0, call.rows - placed, placed, gather}.Fail(status);
      return;
    }
    placed += part.rows;
    lock.unlock();
    bool copied = true;
    try {
      batch->Copy(frame, part);
    } catch (const std::bad_alloc&) {
      copied = false;
    }
    lock.lock();
    if (!copied) batch->broken = true;
    if (--batch->copying == 0) copied_.notify_all();
  }
}

Batcher::BatchPtr Batcher::Reserve(const Call& call, int64_t placed,
                                   std::shared_ptr<Gather>* gather, Part* part) {
  const int64_t left = call.rows - placed;
  if (open_ && signature_.dynamic() && open_->rows + left > signature_.capacity()) {
    ready_.push_back(open_);
    open_.reset();
  }
  BatchPtr batch = open_ ? open_ : batches_.Empty();
  const int64_t rows = std::min(left, signature_.capacity() - batch->rows);
  if (rows < call.rows && !*gather) *gather = NewGather(call.rows);
  *part = {call, batch->rows, rows, placed, *gather};
  batch->parts.push_back(*part);
  if (batch->rows + rows < signature_.capacity()) {
    open_ = batch;
  } else {
    try {
      ready_.push_back(batch);
    } catch (const std::bad_alloc&) {
      batch->parts.pop_back();
      throw;
    }
    open_.reset();
  }
  batch->rows += rows;
  ++batch->copying;
  return batch;
}

// --- Running.

bool Batcher::HasWork() const { return !ready_.empty() || (signature_.dynamic() && open_); }

size_t Batcher::NextFree() {
  for (size_t i = 0; i < busy_.size(); ++i) {
    const size_t executor = (next_ + i) % busy_.size();
    if (busy_[executor]) continue;
    next_ = executor + 1;
    return executor;
  }
  return kNone;
}

std::condition_variable* Batcher::Wake() {
  if (stopped_ || !HasWork()) return nullptr;
  // The collector may be waiting for the batch to fill.
  if (collector_ != kNone) return ready_.empty() ? nullptr : wake_[collector_].get();
  collector_ = NextFree();
  return collector_ == kNone ? nullptr : wake_[collector_].get();
}

void Batcher::WaitForMore(std::unique_lock<std::mutex>* lock, size_t executor) {
  if (!signature_.dynamic() || timeout_.count() <= 0) return;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
  wake_[executor]->wait_until(*lock, deadline, [this] { return stopped_ || !ready_.empty(); });
}

Batcher::BatchPtr Batcher::Take() {
  if (ready_.empty()) return std::move(open_);
  BatchPtr batch = std::move(ready_.front());
  ready_.pop_front();
  return batch;
}

void Batcher::Dispatch() {
  std::unique_lock<std::mutex> lock(mu_);
  std::condition_variable* wake = Wake();
  lock.unlock();
  if (wake != nullptr) wake->notify_one();
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
  batches_.Seal(batch);
  const bool may_repeat =
      binding_.isolate_errors && signature_.dynamic() && batch->parts.size() > 1 && !batch->broken;
  const Clock::time_point start = Clock::now();
  std::vector<Tensor> results;
  const Status status = OrOutOfMemory([&] {
    if (batch->broken) return OutOfMemory();
    return RunChecked(executor, may_repeat ? batch->arguments : std::move(batch->arguments),
                      batch->rows, &results);
  });
  Count(*batch, start, Clock::now());
  if (!status.ok() && may_repeat && status.code != Code::kCancelled) {
    Split(*batch, 0, batch->parts.size(), executor);
  } else {
    AnswerAll(*batch, 0, batch->parts.size(), status, results, executor);
  }
}

bool Batcher::Repeat(const Batch& batch, size_t begin, size_t end, size_t executor) {
  const int64_t first = batch.parts[begin].first;
  const int64_t rows = batch.parts[end - 1].first + batch.parts[end - 1].rows - first;
  std::vector<Tensor> results;
  const Status status =
      OrOutOfMemory([&] { return RunChecked(executor, batch.Rows(first, rows), rows, &results); });
  if (!status.ok() && end - begin > 1 && status.code != Code::kCancelled) {
    Split(batch, begin, end, executor);
  } else {
    AnswerAll(batch, begin, end, status, results, executor);
  }
  return status.ok();
}

void Batcher::Split(const Batch& batch, size_t begin, size_t end, size_t executor) {
  if (end - begin <= kRunAlone) {
    for (size_t i = begin; i < end; ++i) Repeat(batch, i, i + 1, executor);
    return;
  }
  const size_t middle = (begin + end) / 2;
  if (Repeat(batch, begin, middle, executor)) {
    Split(batch, middle, end, executor);  // The fault is here: no need to run it as a whole.
  } else {
    Repeat(batch, middle, end, executor);
  }
}

Status Batcher::RunChecked(size_t executor, std::vector<Tensor> arguments, int64_t rows,
                           std::vector<Tensor>* results) const {
  const Status status = RunAndWait(function(executor), std::move(arguments), results);
  return status.ok() ? signature_.CheckResults(*results, rows) : status;
}

void Batcher::AnswerAll(const Batch& batch, size_t begin, size_t end, const Status& status,
                        const std::vector<Tensor>& results, size_t executor) {
  int64_t answered = 0;
  for (size_t i = begin; i < end; ++i) {
    // Before the last reply, so that its caller's next call finds the executor free.
    if (i + 1 == batch.parts.size()) Release(executor);
    const Part& part = batch.parts[i];
    answered += Answer(part, status, results, part.first - batch.parts[begin].first);
  }
  std::lock_guard<std::mutex> lock(mu_);
  stats_.answered += answered;
}

bool Batcher::Answer(const Part& part, const Status& status, const std::vector<Tensor>& results,
                     int64_t first) {
  if (!status.ok()) {
    if (part.Fail(status)) CountError(status);
    return false;
  }
  const std::optional<Status> sent = part.Reply(results, first, signature_.batched());
  if (sent && !sent->ok()) CountError(*sent);
  return sent && sent->ok();
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
    if (part.first_in_call != 0) continue;  // The rest of a call that two batches share.
    ++stats_.calls;
    stats_.queue_wait_s += Seconds(start - part.call.arrived);
  }
  stats_.rows += batch.rows;
  ++stats_.batches;
  stats_.run_s += Seconds(end - start);
}

void Batcher::CountError(const Status& status) {
  std::string text = status.message.substr(0, kErrorLength);
  // Callers may have chosen part of the text, which must be safe in JSON and on a terminal.
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c > 0x7e; }, '?');
  std::lock_guard<std::mutex> lock(mu_);
  ++stats_.errors;
  stats_.last_error = std::move(text);
}

// --- Shutdown.

void Batcher::Shutdown() {
  std::lock_guard<std::mutex> shutdown_lock(shutdown_mu_);
  std::deque<BatchPtr> waiting;
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    for (auto& wake : wake_) wake->notify_all();
  }
  for (const auto& function : binding_.functions) function->Cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting.swap(ready_);
    if (open_) waiting.push_back(std::move(open_));
  }
  for (const BatchPtr& batch : waiting) {
    for (const Part& part : batch->parts) part.Fail(ServerClosed());
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
