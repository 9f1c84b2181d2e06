// The replay's data: records of unrolls, their priorities, and drawing among them.

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
  int64_t max_bytes;      // Of memory; the oldest unrolls go early when it is reached. 0: none.
  int64_t segment_bytes;  // Size of a piece of memory.
  int32_t level;          // Of zstd; 0 stores everything as it is.
  double exponent;        // Of the priorities.
};

struct ReplayStats {
  int64_t oldest_key;  // Keys in the replay are [oldest_key, next_key).
  int64_t next_key;
  int64_t payload_bytes;  // Records.
  int64_t total_bytes;    // Everything: records, unused ends of segments, priorities, trees.
  int64_t raw_bytes;      // The same unrolls as arrays.
  int64_t evicted_early;  // Unrolls that went because of max_bytes.
  int64_t late_updates;   // Priorities that came after their unroll had gone.
  double total_priority;  // Sum of priority ** exponent.
  double mean_inserted_at;
};

// What a checkpoint needs, as of one moment. Keeps its segments alive.
struct ReplaySnapshot {
  int64_t oldest_key;
  int64_t next_key;
  std::vector<std::shared_ptr<const Segment>> segments;
  std::vector<double> priorities;  // Of the keys [oldest_key, next_key).
  std::vector<double> inserted_at;
};

// Unrolls have keys 0, 1, 2, ... in the order of insertion, which are never used again, so that
// whoever comes late with a key cannot hit another unroll. First in, first out.
//
// Thread-safe. Compressing and decompressing happen outside the lock.
class Replay {
 public:
  Replay(std::vector<Field> fields, const ReplayOptions& options);

  // Inserts `n` unrolls of the batch `views` with priorities >= 0; writes their keys.
  void Insert(int64_t n, const ConstView* views, const double* priorities, double now,
              int64_t* keys);

  // Draws unroll i at the point `fractions[i]` in [0, 1) of the sum of priority ** exponent (all
  // alike if that is 0) and decodes it to place i of `views`. Writes keys, probabilities and when
  // each was inserted. Returns the number of unrolls they were drawn among; 0: empty, nothing
  // was written. Throws std::runtime_error if a record is damaged.
  int64_t Sample(int64_t n, const double* fractions, const View* views, int64_t* keys,
                 double* probabilities, double* inserted_at);

  // Decodes the unrolls of `keys` to `views`; found[i] = 0 for those not there any more.
  void Read(int64_t n, const int64_t* keys, const View* views, uint8_t* found);

  // Sets priorities; leaves out keys that are not there any more. Returns how many were set.
  int64_t UpdatePriorities(int64_t n, const int64_t* keys, const double* priorities);

  // Copies the priorities of `keys`; NaN for those not there any more.
  void Priorities(int64_t n, const int64_t* keys, double* priorities) const;

  void SetExponent(double exponent);
  ReplayStats Stats() const;

  // Takes time for copying the priorities only.
  std::unique_ptr<ReplaySnapshot> Snapshot();

  // Fills an empty replay: first the segments in order, then the priorities and times of the
  // newest `n` keys. Throw std::invalid_argument if something does not fit.
  void RestoreSegment(int64_t first_key, int64_t count, const uint32_t* ends, const uint8_t* data);
  void RestoreEntries(int64_t n, const double* priorities, const double* inserted_at);

  int num_fields() const { return codec_.num_fields(); }

 private:
  int64_t Slot(int64_t key) const { return key % options_.capacity; }
  bool Holds(int64_t key) const { return key >= oldest_ && key < next_; }
  double Weight(double priority) const;
  void SetPriority(int64_t key, double priority);
  void EvictOldest();
  int64_t FixedBytes() const;

  const ReplayOptions options_;
  Codec codec_;
  mutable std::mutex mu_;
  double exponent_;  // Guarded by mu_, as all that follows.
  int64_t oldest_ = 0;
  int64_t next_ = 0;
  int64_t payload_bytes_ = 0;
  int64_t evicted_early_ = 0;
  int64_t late_updates_ = 0;
  double sum_inserted_at_ = 0;
  SegmentLog log_;
  SumTree tree_;                     // priority ** exponent by slot; 0 where there is none.
  std::vector<double> priorities_;   // By slot.
  std::vector<double> inserted_at_;  // By slot; Unix seconds.
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_REPLAY_H_
