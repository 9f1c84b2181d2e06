// Encodes an unroll (several arrays) as one compact record and decodes it, losslessly.

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_CODEC_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_CODEC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "seed_rl/common/native/replay/segment_log.h"

namespace seed_rl {

// How the bytes of a field are arranged before compression.
enum class Filter : int32_t {
  kNone = 0,          // As they are: frames, booleans.
  kShuffle = 1,       // All first bytes of the items, then all second bytes...: floats.
  kDeltaShuffle = 2,  // Differences between consecutive steps, shuffled: counters, actions.
};

// One array of an unroll: `steps` rows of `step_items` items; one row if it has no time axis.
struct Field {
  int64_t steps;
  int64_t step_items;
  int32_t item_bytes;
  Filter filter;

  size_t step_bytes() const { return static_cast<size_t>(step_items) * item_bytes; }
  size_t bytes() const { return static_cast<size_t>(steps) * step_bytes(); }
};

// A field of a batch of unrolls in the caller's memory. The items of a step are contiguous; the
// strides of unrolls and steps are arbitrary, so batch-major and time-major arrays both fit.
struct ConstView {
  const uint8_t* data;
  int64_t batch_stride;
  int64_t step_stride;
};

struct View {
  uint8_t* data;
  int64_t batch_stride;
  int64_t step_stride;
};

// Each large field is a block of its own; the small ones share one. Blocks are compressed with zstd
// where that saves at least a tenth. A record is one uint32 per block (the stored size; the highest
// bit marks a block stored uncompressed), then the blocks.
//
// Thread-safe.
class Codec {
 public:
  Codec(std::vector<Field> fields, int level);

  // The record of unroll `index` of the batch, valid until this thread's next call. `views` has
  // one entry per field.
  Record Encode(const ConstView* views, int64_t index);

  // Writes the unroll in `record` to position `index` of the batch. Returns false if the record is
  // damaged.
  bool Decode(const Record& record, const View* views, int64_t index) const;

  // Whether the sizes in the record match its length and the fields.
  bool Check(const Record& record) const;

  // Bytes of an unroll as arrays.
  int64_t raw_bytes() const { return raw_bytes_; }

 private:
  struct Block {
    int first_field;  // Indices into order_.
    int end_field;
    size_t bytes;
    // Consecutive failures to compress: blocks that never shrink (recurrent states) are rarely
    // tried.
    std::unique_ptr<std::atomic<uint32_t>> failures;
  };

  bool WorthTrying(const Block& block) const;
  size_t EncodeBlock(const Block& block, const ConstView* views, int64_t index, uint8_t* out);
  bool DecodeBlock(const Block& block, const uint8_t* stored, size_t size, bool raw,
                   const View* views, int64_t index) const;

  const std::vector<Field> fields_;
  const int level_;
  int64_t raw_bytes_ = 0;
  size_t largest_record_ = 0;
  std::vector<int> order_;  // Indices of the fields, block by block.
  std::vector<Block> blocks_;
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_CODEC_H_
