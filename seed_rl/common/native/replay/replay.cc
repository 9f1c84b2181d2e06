#include "seed_rl/common/native/replay/replay.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace seed_rl {

Replay::Replay(std::vector<Field> fields, const ReplayOptions& options)
    : options_(options),
      codec_(std::move(fields), options.level),
      exponent_(options.exponent),
      log_(static_cast<size_t>(options.segment_bytes)),
      tree_(options.capacity),
      priorities_(static_cast<size_t>(options.capacity)),
      inserted_at_(static_cast<size_t>(options.capacity)) {}

double Replay::Weight(double priority) const {
  // pow(0, 0) is 1: with exponent 0 all unrolls are drawn uniformly.
  return exponent_ == 1.0 ? priority : std::pow(priority, exponent_);
}

void Replay::SetPriority(int64_t key, double priority) {
  priorities_[Slot(key)] = priority;
  tree_.Set(Slot(key), Weight(priority));
}

void Replay::EvictOldest() {
  Record record;
  log_.Find(oldest_, &record);
  payload_bytes_ -= static_cast<int64_t>(record.bytes);
  sum_inserted_at_ -= inserted_at_[Slot(oldest_)];
  tree_.Set(Slot(oldest_), 0.0);
  ++oldest_;
  log_.DropBefore(oldest_);
}

int64_t Replay::UsedBytes() const {
  return static_cast<int64_t>(log_.bytes() + 2 * sizeof(double) * priorities_.size()) +
         tree_.bytes();
}

void Replay::Insert(int64_t n, const ConstView* views, const double* priorities, double now,
                    int64_t* keys) {
  for (int64_t i = 0; i < n; ++i) {
    const Record record = codec_.Encode(views, i);
    std::lock_guard<std::mutex> lock(mu_);
    if (next_ - oldest_ == options_.capacity) EvictOldest();
    const int64_t key = next_;
    log_.Append(key, record.data, record.bytes);
    ++next_;
    payload_bytes_ += static_cast<int64_t>(record.bytes);
    inserted_at_[Slot(key)] = now;
    sum_inserted_at_ += now;
    SetPriority(key, priorities[i]);
    keys[i] = key;
    while (options_.max_bytes > 0 && oldest_ < key && UsedBytes() > options_.max_bytes) {
      EvictOldest();
      ++evicted_early_;
    }
  }
}

int64_t Replay::Sample(int64_t n, const double* fractions, const View* views, int64_t* keys,
                       double* probabilities) {
  std::vector<std::shared_ptr<const Segment>> segments(n);
  std::vector<Record> records(n);
  int64_t size = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    size = next_ - oldest_;
    if (size == 0) return 0;
    const double total = tree_.total();
    for (int64_t i = 0; i < n; ++i) {
      int64_t key = 0;
      if (total > 0) {
        const int64_t slot = tree_.Find(fractions[i]);
        // The only key in [oldest_, oldest_ + capacity) that maps to this slot.
        key = oldest_ + (slot - Slot(oldest_) + options_.capacity) % options_.capacity;
        probabilities[i] = tree_.Get(slot) / total;
      } else {
        key = oldest_ + std::min(static_cast<int64_t>(fractions[i] * size), size - 1);
        probabilities[i] = 1.0 / static_cast<double>(size);
      }
      keys[i] = key;
      segments[i] = log_.Find(key, &records[i]);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    if (!codec_.Decode(records[i], views, i)) {
      throw std::runtime_error("unroll " + std::to_string(keys[i]) + " in the replay is damaged");
    }
  }
  return size;
}

int64_t Replay::UpdatePriorities(int64_t n, const int64_t* keys, const double* priorities) {
  std::lock_guard<std::mutex> lock(mu_);
  int64_t updated = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!Holds(keys[i])) continue;
    SetPriority(keys[i], priorities[i]);
    ++updated;
  }
  late_updates_ += n - updated;
  return updated;
}

void Replay::SetExponent(double exponent) {
  std::lock_guard<std::mutex> lock(mu_);
  if (exponent == exponent_) return;
  exponent_ = exponent;
  for (int64_t key = oldest_; key < next_; ++key) {
    tree_.SetWithoutSums(Slot(key), Weight(priorities_[Slot(key)]));
  }
  tree_.Rebuild();
}

ReplayStats Replay::Stats() const {
  std::lock_guard<std::mutex> lock(mu_);
  const int64_t size = next_ - oldest_;
  ReplayStats stats;
  stats.oldest_key = oldest_;
  stats.next_key = next_;
  stats.payload_bytes = payload_bytes_;
  stats.total_bytes = UsedBytes();
  stats.raw_bytes = size * codec_.raw_bytes();
  stats.evicted_early = evicted_early_;
  stats.late_updates = late_updates_;
  stats.total_priority = tree_.total();
  stats.mean_inserted_at = size > 0 ? sum_inserted_at_ / static_cast<double>(size) : 0.0;
  return stats;
}

std::unique_ptr<ReplaySnapshot> Replay::Snapshot() {
  auto snapshot = std::make_unique<ReplaySnapshot>();
  std::lock_guard<std::mutex> lock(mu_);
  log_.Seal();
  snapshot->oldest_key = oldest_;
  snapshot->next_key = next_;
  snapshot->segments.assign(log_.segments().begin(), log_.segments().end());
  snapshot->priorities.reserve(static_cast<size_t>(next_ - oldest_));
  snapshot->inserted_at.reserve(static_cast<size_t>(next_ - oldest_));
  for (int64_t key = oldest_; key < next_; ++key) {
    snapshot->priorities.push_back(priorities_[Slot(key)]);
    snapshot->inserted_at.push_back(inserted_at_[Slot(key)]);
  }
  return snapshot;
}

void Replay::RestoreSegment(int64_t first_key, int64_t count, const uint32_t* ends,
                            const uint8_t* data) {
  if (first_key < 0 || count <= 0) throw std::invalid_argument("a segment without unrolls");
  auto segment = std::make_shared<Segment>(first_key, ends[count - 1]);
  segment->ends.assign(ends, ends + count);
  size_t begin = 0;
  for (const uint32_t end : segment->ends) {
    if (end < begin || end > segment->used() || !codec_.Check({data + begin, end - begin})) {
      throw std::invalid_argument("a segment with damaged records");
    }
    begin = end;
  }
  std::copy(data, data + segment->used(), segment->memory.data());
  std::lock_guard<std::mutex> lock(mu_);
  const auto& segments = log_.segments();
  if (oldest_ != next_ || (!segments.empty() && segments.back()->end_key() != first_key)) {
    throw std::invalid_argument("segments that are not consecutive");
  }
  log_.AppendSegment(std::move(segment));
}

void Replay::RestoreEntries(int64_t n, const double* priorities, const double* inserted_at) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto& segments = log_.segments();
  if (oldest_ != next_ || segments.empty()) throw std::invalid_argument("nothing to restore");
  if (n <= 0 || n > options_.capacity ||
      n > segments.back()->end_key() - segments.front()->first_key) {
    throw std::invalid_argument("more priorities than unrolls, or more than the capacity");
  }
  next_ = segments.back()->end_key();
  oldest_ = next_ - n;
  for (int64_t key = oldest_; key < next_; ++key) {
    Record record;
    log_.Find(key, &record);
    payload_bytes_ += static_cast<int64_t>(record.bytes);
    priorities_[Slot(key)] = priorities[key - oldest_];
    inserted_at_[Slot(key)] = inserted_at[key - oldest_];
    sum_inserted_at_ += inserted_at[key - oldest_];
    tree_.SetWithoutSums(Slot(key), Weight(priorities[key - oldest_]));
  }
  tree_.Rebuild();
  log_.DropBefore(oldest_);
}

}  // namespace seed_rl
