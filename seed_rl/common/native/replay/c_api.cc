// The C interface that seed_rl/common/replay/native.py calls through ctypes.
//
// Functions return 0 (or a count), or a negative number on failure; seed_replay_error then returns
// the reason. No exception leaves them.

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "seed_rl/common/native/replay/replay.h"

#define SEED_REPLAY_API extern "C" __attribute__((visibility("default")))

namespace {

using seed_rl::ConstView;
using seed_rl::Field;
using seed_rl::Replay;
using seed_rl::ReplayOptions;
using seed_rl::ReplaySnapshot;
using seed_rl::ReplayStats;
using seed_rl::View;

constexpr int kInvalid = -1;
constexpr int kDamaged = -2;
constexpr int kNoMemory = -3;

thread_local std::string last_error;

template <typename Body>
int64_t Guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return kNoMemory;
  } catch (const std::invalid_argument& error) {
    last_error = error.what();
    return kInvalid;
  } catch (const std::exception& error) {
    last_error = error.what();
    return kDamaged;
  }
}

}  // namespace

SEED_REPLAY_API const char* seed_replay_error() { return last_error.c_str(); }

// Replay.

SEED_REPLAY_API int64_t seed_replay_create(int64_t num_fields, const Field* fields,
                                           const ReplayOptions* options, Replay** replay) {
  return Guarded([&] {
    *replay = new Replay(std::vector<Field>(fields, fields + num_fields), *options);
    return 0;
  });
}

SEED_REPLAY_API void seed_replay_destroy(Replay* replay) { delete replay; }

SEED_REPLAY_API int64_t seed_replay_insert(Replay* replay, int64_t n, const ConstView* views,
                                           const double* priorities, double now, int64_t* keys) {
  return Guarded([&] {
    replay->Insert(n, views, priorities, now, keys);
    return 0;
  });
}

// Returns the number of unrolls in the replay.
SEED_REPLAY_API int64_t seed_replay_sample(Replay* replay, int64_t n, const double* fractions,
                                           const View* views, int64_t* keys,
                                           double* probabilities) {
  return Guarded([&] { return replay->Sample(n, fractions, views, keys, probabilities); });
}

// Returns the number of priorities set.
SEED_REPLAY_API int64_t seed_replay_update_priorities(Replay* replay, int64_t n,
                                                      const int64_t* keys,
                                                      const double* priorities) {
  return Guarded([&] { return replay->UpdatePriorities(n, keys, priorities); });
}

SEED_REPLAY_API void seed_replay_set_exponent(Replay* replay, double exponent) {
  replay->SetExponent(exponent);
}

SEED_REPLAY_API void seed_replay_stats(const Replay* replay, ReplayStats* stats) {
  *stats = replay->Stats();
}

SEED_REPLAY_API int64_t seed_replay_restore_segment(Replay* replay, int64_t first_key,
                                                    int64_t count, const uint32_t* ends,
                                                    const uint8_t* data) {
  return Guarded([&] {
    replay->RestoreSegment(first_key, count, ends, data);
    return 0;
  });
}

SEED_REPLAY_API int64_t seed_replay_restore_entries(Replay* replay, int64_t n,
                                                    const double* priorities,
                                                    const double* inserted_at) {
  return Guarded([&] {
    replay->RestoreEntries(n, priorities, inserted_at);
    return 0;
  });
}

// Snapshot.

struct SeedReplaySegment {
  int64_t first_key;
  int64_t count;
  int64_t bytes;
  const uint32_t* ends;
  const uint8_t* data;
};

struct SeedReplayEntries {
  int64_t oldest_key;
  int64_t next_key;
  int64_t num_segments;
  const double* priorities;
  const double* inserted_at;
};

SEED_REPLAY_API int64_t seed_replay_snapshot(Replay* replay, ReplaySnapshot** snapshot) {
  return Guarded([&] {
    *snapshot = replay->Snapshot().release();
    return 0;
  });
}

SEED_REPLAY_API void seed_replay_snapshot_destroy(ReplaySnapshot* snapshot) { delete snapshot; }

SEED_REPLAY_API void seed_replay_snapshot_entries(const ReplaySnapshot* snapshot,
                                                  SeedReplayEntries* entries) {
  *entries = {snapshot->oldest_key, snapshot->next_key,
              static_cast<int64_t>(snapshot->segments.size()), snapshot->priorities.data(),
              snapshot->inserted_at.data()};
}

SEED_REPLAY_API void seed_replay_snapshot_segment(const ReplaySnapshot* snapshot, int64_t index,
                                                  SeedReplaySegment* segment) {
  const seed_rl::Segment& from = *snapshot->segments[index];
  *segment = {from.first_key, static_cast<int64_t>(from.ends.size()),
              static_cast<int64_t>(from.used()), from.ends.data(), from.memory.data()};
}
