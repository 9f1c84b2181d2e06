// The replay's data: records of unrolls and their priorities, and sampling from them.

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_REPLAY_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_REPLAY_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "seed_rl/common/native/replay/codec.h"
#include "seed_rl/common/native/replay/segment_log.h"
#include "seed_rl/common/native/replay/sum_tree.h"

namespace seed_rl {

struct ReplayOptions {
  int64_t capacity;       // Unrolls.
  int64_t max_bytes;      // Memory limit, kept by evicting the oldest unrolls early. 0: no limit.
  int64_t segment_bytes;  // Size of a segment of the log.
  int32_t level;          // Of zstd; 0 stores everything uncompressed.
  double exponent;        // Of the priorities.
};

struct ReplayStats {
  int64_t oldest_key;  // Keys in the replay are [oldest_key, next_key).
  int64_t next_key;
  int64_t payload_bytes;  // Records.
  int64_t total_bytes;    // Everything: records, unused ends of segments, priorities, tree.
  int64_t raw_bytes;      // The same unrolls as arrays.
  int64_t evicted_early;  // Unrolls evicted because of max_bytes.
  int64_t late_updates;   // Priorities that arrived after their unroll had been evicted.
  double total_priority;  // Sum of priority ** exponent.
  double mean_inserted_at;
};

// The content for a checkpoint, as of one moment. Keeps its segments alive.
struct ReplaySnapshot {
  int64_t oldest_key;
  int64_t next_key;
  std::vector<std::shared_ptr<const Segment>> segments;
  std::vector<double> priorities;  // Of the keys [oldest_key, next_key).
  std::vector<double> inserted_at;
};

// Unrolls have keys 0, 1, 2, ... in insertion order. Keys are never reused, so a late key cannot
// hit another unroll. First in, first out.
//
// Thread-safe. Compressing and decompressing happen outside the lock.
class Replay {
 public:
  Replay(std::vector<Field> fields, const ReplayOptions& options);

  // Inserts `n` unrolls of the batch `views` with priorities >= 0; writes their keys.
  void Insert(int64_t n, const ConstView* views, const double* priorities, double now,
              int64_t* keys);

  // Draws unroll i at the point `fractions[i]` in [0, 1) of the sum of priority ** exponent
  // (uniformly if that is 0) and decodes it to position i of `views`. Writes keys and
  // probabilities. Returns the number of unrolls in the replay; if it is 0, nothing was written.
  // Throws std::runtime_error if a record is damaged.
  int64_t Sample(int64_t n, const double* fractions, const View* views, int64_t* keys,
                 double* probabilities);

  // Sets priorities, ignoring evicted keys. Returns how many were set.
  int64_t UpdatePriorities(int64_t n, const int64_t* keys, const double* priorities);

  void SetExponent(double exponent);
  ReplayStats Stats() const;

  // Copies only the priorities and times, so it is fast.
  std::unique_ptr<ReplaySnapshot> Snapshot();

  // Fill an empty replay: first the segments in order, then the priorities and times of the newest
  // `n` keys. Throw std::invalid_argument on inconsistent input.
  void RestoreSegment(int64_t first_key, int64_t count, const uint32_t* ends, const uint8_t* data);
  void RestoreEntries(int64_t n, const double* priorities, const double* inserted_at);

 private:
  int64_t Slot(int64_t key) const { return key % options_.capacity; }
  bool Holds(int64_t key) const { return key >= oldest_ && key < next_; }
  double Weight(double priority) const;
  void SetPriority(int64_t key, double priority);
  void EvictOldest();
  int64_t UsedBytes() const;

  const ReplayOptions options_;
  Codec codec_;
  mutable std::mutex mu_;
  double exponent_;  // Guarded by mu_, like all members below.
  int64_t oldest_ = 0;
  int64_t next_ = 0;
  int64_t payload_bytes_ = 0;
  int64_t evicted_early_ = 0;
  int64_t late_updates_ = 0;
  double sum_inserted_at_ = 0;
  SegmentLog log_;
  SumTree tree_;                     // priority ** exponent by slot; 0 in empty slots.
  std::vector<double> priorities_;   // By slot.
  std::vector<double> inserted_at_;  // By slot; Unix seconds.
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_REPLAY_H_
