#include "seed_rl/common/native/replay/filters.h"

#include <cstring>

namespace seed_rl {
namespace {

template <typename Item>
Item Load(const uint8_t* from) {
  Item item;
  std::memcpy(&item, from, sizeof(item));
  return item;
}

// Calls `visit` with an unsigned item of the field's width: 2, 4 or 8 bytes. No others are
// filtered.
template <typename Visit>
void WithItemType(const Field& field, Visit visit) {
  switch (field.item_bytes) {
    case 2:
      return visit(uint16_t{});
    case 4:
      return visit(uint32_t{});
    default:
      return visit(uint64_t{});
  }
}

// Byte k of item j goes to out[k * items + j]. Bytes are numbered by shifts, not by memory order,
// so records are portable.
template <typename Item>
void Shuffle(const Field& field, const uint8_t* data, int64_t step_stride, uint8_t* out) {
  const bool delta = field.filter == Filter::kDeltaShuffle;
  const int64_t items = field.steps * field.step_items;
  int64_t j = 0;
  for (int64_t step = 0; step < field.steps; ++step) {
    const uint8_t* row = data + step * step_stride;
    for (int64_t i = 0; i < field.step_items; ++i, ++j) {
      Item item = Load<Item>(row + i * sizeof(Item));
      // Unsigned differences wrap around, so adding them back is exact.
      if (delta && step > 0) item -= Load<Item>(row - step_stride + i * sizeof(Item));
      for (size_t k = 0; k < sizeof(Item); ++k) {
        out[k * items + j] = static_cast<uint8_t>(item >> (8 * k));
      }
    }
  }
}

template <typename Item>
void Unshuffle(const Field& field, const uint8_t* in, uint8_t* data, int64_t step_stride) {
  const bool delta = field.filter == Filter::kDeltaShuffle;
  const int64_t items = field.steps * field.step_items;
  int64_t j = 0;
  for (int64_t step = 0; step < field.steps; ++step) {
    uint8_t* row = data + step * step_stride;
    for (int64_t i = 0; i < field.step_items; ++i, ++j) {
      Item item = 0;
      for (size_t k = 0; k < sizeof(Item); ++k) {
        item |= static_cast<Item>(static_cast<Item>(in[k * items + j]) << (8 * k));
      }
      if (delta && step > 0) item += Load<Item>(row - step_stride + i * sizeof(Item));
      std::memcpy(row + i * sizeof(Item), &item, sizeof(item));
    }
  }
}

}  // namespace

void FilterField(const Field& field, const ConstView& view, int64_t index, uint8_t* out) {
  const uint8_t* data = view.data + index * view.batch_stride;
  if (field.filter != Filter::kNone) {
    WithItemType(field,
                 [&](auto item) { Shuffle<decltype(item)>(field, data, view.step_stride, out); });
    return;
  }
  for (int64_t step = 0; step < field.steps; ++step) {
    std::memcpy(out + step * field.step_bytes(), data + step * view.step_stride,
                field.step_bytes());
  }
}

void UnfilterField(const Field& field, const uint8_t* in, const View& view, int64_t index) {
  uint8_t* data = view.data + index * view.batch_stride;
  if (field.filter != Filter::kNone) {
    WithItemType(field,
                 [&](auto item) { Unshuffle<decltype(item)>(field, in, data, view.step_stride); });
    return;
  }
  for (int64_t step = 0; step < field.steps; ++step) {
    std::memcpy(data + step * view.step_stride, in + step * field.step_bytes(), field.step_bytes());
  }
}

}  // namespace seed_rl
