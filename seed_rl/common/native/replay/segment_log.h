// The bytes of the replay: records in the order of their insertion, in immutable segments.

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_SEGMENT_LOG_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_SEGMENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace seed_rl {

// Anonymous memory that goes back to the system when it is done with, whatever the allocator's
// state: the replay runs for weeks at the edge of the machine's memory.
class Mapping {
 public:
  explicit Mapping(size_t bytes);  // Throws std::bad_alloc.
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Gives the pages back that lie behind the first `bytes`.
  void Trim(size_t bytes);

 private:
  uint8_t* data_;
  size_t bytes_;
};

// Records of consecutive keys, back to back. Bytes once written never change.
struct Segment {
  Segment(int64_t first_key, size_t bytes) : first_key(first_key), memory(bytes) {}

  int64_t end_key() const { return first_key + static_cast<int64_t>(ends.size()); }
  size_t used() const { return ends.empty() ? 0 : ends.back(); }

  const int64_t first_key;
  std::vector<uint32_t> ends;  // Where each record ends; it starts where the one before ends.
  Mapping memory;
};

struct Record {
  const uint8_t* data;
  size_t bytes;
};

// First in, first out, so whole segments come free one after the other and nothing fragments.
// Segments are shared: whoever reads a record keeps its segment alive without holding a lock.
//
// Not thread-safe, but the bytes of a record may be read while others are appended.
class SegmentLog {
 public:
  // A segment holds `segment_bytes`, or one record if that is larger.
  explicit SegmentLog(size_t segment_bytes) : segment_bytes_(segment_bytes) {}

  // Appends the record of `key`, which must follow the last one's (any, if the log is empty).
  void Append(int64_t key, const uint8_t* data, size_t bytes);

  // Appends a sealed segment (of an older run).
  void AppendSegment(std::shared_ptr<Segment> segment);

  // Frees what only keys before `key` need.
  void DropBefore(int64_t key);

  // Starts a new segment at the next append, so that all the present ones are immutable.
  void Seal();

  // The record of `key`, which must be there, and the segment that holds it.
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
