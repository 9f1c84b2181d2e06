#include "seed_rl/grpc/native/transport/batcher.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace seed_rl::transport {
namespace {

// A run that takes less than this is quick: running it on a network thread saves more time than it
// costs the calls that wait for that thread.
constexpr auto kQuickRun = std::chrono::microseconds(100);
// Runs are expected to be quick if `quickness_` is at least this.
constexpr int kQuick = 32;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Status ServerClosed() { return {Code::kUnavailable, "server closed"}; }

size_t NumExecutors(const Binding& binding) {
  return binding.functions.size() * std::max(1, binding.max_in_flight);
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
  if (!status.ok()) {
    CountError();
    call.Fail(status);
  } else if (signature_.batched()) {
    AddToBatches(call, frame);
  } else {
    AddAlone(std::move(call), frame);
  }
}

void Batcher::AddAlone(Call call, const Frame& frame) {
  BatchPtr batch = BatchFactory::Single(std::move(call), frame);
  std::unique_lock<std::mutex> lock(mu_);
  if (!stopped_) {
    ready_.push_back(std::move(batch));
    return;
  }
  lock.unlock();
  batch->parts[0].Fail(ServerClosed());
}

void Batcher::AddToBatches(const Call& call, const Frame& frame) {
  std::shared_ptr<Gather> gather;
  int64_t placed = 0;
  std::unique_lock<std::mutex> lock(mu_);
  while (placed < call.rows) {
    const int64_t left = call.rows - placed;
    if (stopped_) {
      lock.unlock();
      // Shutdown fails the rows that are already in a batch.
      Part{call, 0, left, placed, gather}.Fail(ServerClosed());
      return;
    }
    if (open_ && signature_.dynamic() && open_->rows + left > signature_.capacity()) {
      ready_.push_back(std::move(open_));
    }
    if (!open_) open_ = batches_.Empty();
    BatchPtr batch = open_;
    const int64_t rows = std::min(left, signature_.capacity() - batch->rows);
    if (rows < call.rows && !gather) gather = NewGather(call.rows);
    const Part part = {call, batch->rows, rows, placed, gather};
    batch->parts.push_back(part);
    batch->rows += rows;
    placed += rows;
    ++batch->copying;
    if (batch->rows == signature_.capacity()) ready_.push_back(std::move(open_));
    lock.unlock();
    batch->Copy(frame, part);
    lock.lock();
    if (--batch->copying == 0) copied_.notify_all();
  }
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

Batcher::BatchPtr Batcher::TakeInline(size_t* executor) {
  const bool possible = quickness_ >= kQuick && timeout_.count() <= 0 && !binding_.isolate_errors;
  if (!possible || stopped_ || !HasWork() || collector_ != kNone) return nullptr;
  if ((ready_.empty() ? open_ : ready_.front())->copying > 0) return nullptr;
  *executor = NextFree();
  if (*executor == kNone) return nullptr;
  busy_[*executor] = true;
  ++inline_runs_;
  return Take();
}

void Batcher::NoteRunTime(Clock::duration time) {
  if (time < kQuickRun) {
    quickness_ = std::min(quickness_ + 1, 2 * kQuick);
  } else {
    quickness_ = std::max(quickness_ - kQuick, 0);
  }
}

void Batcher::Dispatch() {
  std::unique_lock<std::mutex> lock(mu_);
  size_t executor;
  while (BatchPtr batch = TakeInline(&executor)) {
    lock.unlock();
    RunInline(batch, executor);
    lock.lock();
  }
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
      binding_.isolate_errors && signature_.dynamic() && batch->parts.size() > 1;
  const Clock::time_point start = Clock::now();
  std::vector<Tensor> results;
  Status status =
      RunAndWait(function(executor), may_repeat ? batch->arguments : std::move(batch->arguments),
                 batch->rows, &results);
  Count(*batch, start, Clock::now());
  const bool repeat = !status.ok() && may_repeat && status.code != Code::kCancelled;
  for (const Part& part : batch->parts) {
    std::vector<Tensor> own_results;
    if (repeat) {
      status = RunAndWait(function(executor), batch->RowsOf(part), part.rows, &own_results);
    }
    // Before the last reply, so that a caller's next call finds the executor free.
    if (&part == &batch->parts.back()) Release(executor, true);
    Answer(part, status, repeat ? own_results : results, repeat ? 0 : part.first);
  }
}

void Batcher::RunInline(const BatchPtr& batch, size_t executor) {
  batches_.Seal(batch.get());
  const Clock::time_point start = Clock::now();
  const std::thread::id this_thread = std::this_thread::get_id();
  std::vector<Tensor> arguments = std::move(batch->arguments);
  function(executor)->Start(std::move(arguments),
                            [=](Status status, const std::vector<Tensor>& results) {
                              if (status.ok())
                                status = signature_.CheckResults(results, batch->rows);
                              Count(*batch, start, Clock::now());
                              // On the same thread, Dispatch itself looks for more work.
                              const bool later = std::this_thread::get_id() != this_thread;
                              for (const Part& part : batch->parts) {
                                if (&part == &batch->parts.back()) Release(executor, later);
                                Answer(part, status, results, part.first);
                              }
                              std::lock_guard<std::mutex> lock(mu_);
                              if (--inline_runs_ == 0) no_inline_runs_.notify_all();
                            });
}

Status Batcher::RunAndWait(Function* function, std::vector<Tensor> arguments, int64_t rows,
                           std::vector<Tensor>* results) const {
  std::mutex mu;
  std::condition_variable finished;
  bool done = false;
  Status status;
  function->Start(std::move(arguments), [&](const Status& result, std::vector<Tensor> tensors) {
    std::lock_guard<std::mutex> lock(mu);
    status = result;
    *results = std::move(tensors);
    done = true;
    finished.notify_one();
  });
  std::unique_lock<std::mutex> lock(mu);
  finished.wait(lock, [&] { return done; });
  return status.ok() ? signature_.CheckResults(*results, rows) : status;
}

void Batcher::Answer(const Part& part, const Status& status, const std::vector<Tensor>& results,
                     int64_t first) {
  const bool failed =
      status.ok() ? part.Reply(results, first, signature_.batched()) : part.Fail(status);
  if (failed) CountError();
}

void Batcher::Release(size_t executor, bool wake) {
  std::unique_lock<std::mutex> lock(mu_);
  busy_[executor] = false;
  std::condition_variable* thread = wake ? Wake() : nullptr;
  lock.unlock();
  if (thread != nullptr) thread->notify_one();
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
  NoteRunTime(end - start);
}

void Batcher::CountError() {
  std::lock_guard<std::mutex> lock(mu_);
  ++stats_.errors;
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
    std::unique_lock<std::mutex> lock(mu_);
    no_inline_runs_.wait(lock, [this] { return inline_runs_ == 0; });
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
