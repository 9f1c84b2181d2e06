// The replay's records in insertion order, in immutable segments.

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_SEGMENT_LOG_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_SEGMENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace seed_rl {

// Anonymous memory that returns to the system when it is freed, whatever the state of the
// allocator: the replay may run for weeks close to the machine's memory limit.
class Mapping {
 public:
  explicit Mapping(size_t bytes);  // Throws std::bad_alloc.
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Frees the pages past the first `bytes`.
  void Trim(size_t bytes);

 private:
  uint8_t* data_;
  size_t bytes_;
};

// Records of consecutive keys, back to back. Written bytes never change.
struct Segment {
  Segment(int64_t first_key, size_t bytes) : first_key(first_key), memory(bytes) {}

  int64_t end_key() const { return first_key + static_cast<int64_t>(ends.size()); }
  size_t used() const { return ends.empty() ? 0 : ends.back(); }

  const int64_t first_key;
  std::vector<uint32_t> ends;  // End offset of each record; it starts where the previous one ends.
  Mapping memory;
};

struct Record {
  const uint8_t* data;
  size_t bytes;
};

// First in, first out, so segments are freed whole, in order, and memory does not fragment.
// Segments are shared: a reader keeps the segment of its record alive without holding a lock.
//
// Not thread-safe, but a record may be read while others are appended.
class SegmentLog {
 public:
  // A segment holds `segment_bytes`, or one record if that is larger.
  explicit SegmentLog(size_t segment_bytes) : segment_bytes_(segment_bytes) {}

  // Appends the record of `key`, the successor of the last key (any key if the log is empty).
  void Append(int64_t key, const uint8_t* data, size_t bytes);

  // Appends a sealed segment (from a checkpoint).
  void AppendSegment(std::shared_ptr<Segment> segment);

  // Frees the segments that hold only keys before `key`.
  void DropBefore(int64_t key);

  // Makes all current segments immutable: the next append starts a new one.
  void Seal();

  // Sets `record` to the record of `key`, which must be in the log; returns the segment it is in.
  std::shared_ptr<const Segment> Find(int64_t key, Record* record) const;

  const std::deque<std::shared_ptr<Segment>>& segments() const { return segments_; }

  // Memory held, in whole pages.
  size_t bytes() const { return bytes_; }

 private:
  const size_t segment_bytes_;
  std::deque<std::shared_ptr<Segment>> segments_;
  bool open_ = false;  // Whether the last segment may grow.
  size_t bytes_ = 0;
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_SEGMENT_LOG_H_
