// Rearranges the bytes of a field so that they compress better.

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_FILTERS_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_FILTERS_H_

#include <cstdint>

#include "seed_rl/common/native/replay/codec.h"

namespace seed_rl {

// Writes unroll `index` of `view`, filtered, to the `field.bytes()` bytes at `out`.
void FilterField(const Field& field, const ConstView& view, int64_t index, uint8_t* out);

// The inverse.
void UnfilterField(const Field& field, const uint8_t* in, const View& view, int64_t index);

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_FILTERS_H_
