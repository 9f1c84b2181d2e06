#include "seed_rl/common/native/replay/codec.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "seed_rl/common/native/replay/filters.h"

namespace seed_rl {
namespace {

constexpr size_t kLargeField = 4096;
constexpr uint32_t kRawBit = 0x80000000u;
// After `kGiveUp` consecutive blocks that did not shrink, only one in `kRetry` is tried.
constexpr uint32_t kGiveUp = 16;
constexpr uint32_t kRetry = 256;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

ZSTD_CCtx* CompressionContext() {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  return context.get();
}

ZSTD_DCtx* DecompressionContext() {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  return context.get();
}

// Memory that a thread keeps for its next call. Not a vector, which would zero it.
class Scratch {
 public:
  uint8_t* Get(size_t bytes) {
    if (bytes_ < bytes) {
      data_.reset(new uint8_t[bytes]);
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<uint8_t[]> data_;
  size_t bytes_ = 0;
};

thread_local Scratch block_scratch;   // One uncompressed block.
thread_local Scratch record_scratch;  // One record.

uint32_t LoadSize(const uint8_t* from) {
  return static_cast<uint32_t>(from[0]) | static_cast<uint32_t>(from[1]) << 8 |
         static_cast<uint32_t>(from[2]) << 16 | static_cast<uint32_t>(from[3]) << 24;
}

void StoreSize(uint32_t size, uint8_t* to) {
  for (int k = 0; k < 4; ++k) to[k] = static_cast<uint8_t>(size >> (8 * k));
}

// A record of a large replay is in no cache; reading it in order would wait for memory and page
// walks at every cache line.
void Prefetch(const Record& record) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < record.bytes; i += kCacheLine) __builtin_prefetch(record.data + i);
}

// Whether an unroll in a view has the same bytes as the field's block, so that no copy is needed.
template <typename AnyView>
bool IsPlain(const Field& field, const AnyView& view) {
  return field.filter == Filter::kNone &&
         (field.steps == 1 || view.step_stride == static_cast<int64_t>(field.step_bytes()));
}

}  // namespace

Codec::Codec(std::vector<Field> fields, int level)
    : fields_(std::move(fields)), level_(level), order_(fields_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](int a, int b) {
    return (fields_[a].bytes() < kLargeField) > (fields_[b].bytes() < kLargeField);
  });
  for (int i = 0; i < static_cast<int>(order_.size()); ++i) {
    const size_t bytes = fields_[order_[i]].bytes();
    raw_bytes_ += static_cast<int64_t>(bytes);
    if (i == 0 || bytes >= kLargeField) {
      blocks_.push_back({i, i, 0, std::make_unique<std::atomic<uint32_t>>(0)});
    }
    blocks_.back().end_field = i + 1;
    blocks_.back().bytes += bytes;
  }
  for (const Block& block : blocks_) largest_record_ += 4 + ZSTD_compressBound(block.bytes);
  if (largest_record_ >= kRawBit) {
    throw std::invalid_argument("an unroll of " + std::to_string(raw_bytes_) +
                                " bytes exceeds the replay's limit of 2 GiB");
  }
}

bool Codec::WorthTrying(const Block& block) const {
  if (level_ == 0 || block.bytes == 0) return false;
  const uint32_t failures = block.failures->load(std::memory_order_relaxed);
  if (failures < kGiveUp) return true;
  return block.failures->fetch_add(1, std::memory_order_relaxed) % kRetry == 0;
}

Record Codec::Encode(const ConstView* views, int64_t index) {
  uint8_t* record = record_scratch.Get(largest_record_);
  size_t end = 4 * blocks_.size();
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const size_t size = EncodeBlock(blocks_[b], views, index, record + end);
    const bool raw = size == blocks_[b].bytes;
    StoreSize(static_cast<uint32_t>(size) | (raw ? kRawBit : 0), record + 4 * b);
    end += size;
  }
  return {record, end};
}

// Writes the block to `out` and returns the stored size: `block.bytes` if it is uncompressed.
size_t Codec::EncodeBlock(const Block& block, const ConstView* views, int64_t index, uint8_t* out) {
  const Field& first = fields_[order_[block.first_field]];
  const ConstView& first_view = views[order_[block.first_field]];
  const uint8_t* plain = nullptr;
  if (block.end_field - block.first_field == 1 && IsPlain(first, first_view)) {
    plain = first_view.data + index * first_view.batch_stride;
  } else {
    uint8_t* scratch = block_scratch.Get(block.bytes);
    plain = scratch;
    for (int i = block.first_field; i < block.end_field; ++i) {
      FilterField(fields_[order_[i]], views[order_[i]], index, scratch);
      scratch += fields_[order_[i]].bytes();
    }
  }
  if (WorthTrying(block)) {
    const size_t size = ZSTD_compressCCtx(
        CompressionContext(), out, ZSTD_compressBound(block.bytes), plain, block.bytes, level_);
    if (!ZSTD_isError(size) && size < block.bytes - block.bytes / 10) {
      block.failures->store(0, std::memory_order_relaxed);
      return size;
    }
    block.failures->fetch_add(1, std::memory_order_relaxed);
  }
  if (block.bytes > 0) std::memcpy(out, plain, block.bytes);
  return block.bytes;
}

bool Codec::Check(const Record& record) const {
  const size_t header = 4 * blocks_.size();
  if (record.bytes < header) return false;
  size_t total = header;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const uint32_t word = LoadSize(record.data + 4 * b);
    const size_t size = word & ~kRawBit;
    if ((word & kRawBit) != 0 ? size != blocks_[b].bytes : size >= blocks_[b].bytes) return false;
    total += size;
  }
  return total == record.bytes;
}

bool Codec::Decode(const Record& record, const View* views, int64_t index) const {
  Prefetch(record);
  if (!Check(record)) return false;
  const uint8_t* stored = record.data + 4 * blocks_.size();
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const uint32_t word = LoadSize(record.data + 4 * b);
    const size_t size = word & ~kRawBit;
    if (!DecodeBlock(blocks_[b], stored, size, (word & kRawBit) != 0, views, index)) return false;
    stored += size;
  }
  return true;
}

bool Codec::DecodeBlock(const Block& block, const uint8_t* stored, size_t size, bool raw,
                        const View* views, int64_t index) const {
  const Field& first = fields_[order_[block.first_field]];
  const View& first_view = views[order_[block.first_field]];
  if (!raw) {
    const bool in_place = block.end_field - block.first_field == 1 && IsPlain(first, first_view);
    uint8_t* plain = in_place ? first_view.data + index * first_view.batch_stride
                              : block_scratch.Get(block.bytes);
    const size_t got =
        ZSTD_decompressDCtx(DecompressionContext(), plain, block.bytes, stored, size);
    if (ZSTD_isError(got) || got != block.bytes) return false;
    if (in_place) return true;
    stored = plain;
  }
  for (int i = block.first_field; i < block.end_field; ++i) {
    UnfilterField(fields_[order_[i]], stored, views[order_[i]], index);
    stored += fields_[order_[i]].bytes();
  }
  return true;
}

}  // namespace seed_rl
