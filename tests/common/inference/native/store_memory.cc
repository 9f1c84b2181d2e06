// Each allocation of the inference store fails once. What was refused is begun again, row by row,
// as a server with isolate_errors does; then unrolls and episodes must be those of a run without
// failures. See test_store_memory.py.

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "seed_rl/common/native/unrolls/inference_store.h"
#include "tests/helpers/check.h"

namespace {

int allocations_left = -1;  // Until one fails; negative: none does.

}  // namespace

void* operator new(size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using seed_rl::EpisodeStats;
using seed_rl::InferenceStore;
using seed_rl::StoreOptions;
using seed_rl::Unroll;
using seed_rl::UnrollPtr;

constexpr int32_t kEnvs = 3;  // The last one is for evaluation.
constexpr int kSteps = 14;
constexpr int64_t kRun = 1;

using Rows = std::vector<uint8_t>;  // A byte per environment, for each of action, state and step.

StoreOptions Options() {
  StoreOptions options;
  options.num_envs = kEnvs;
  options.num_training_envs = kEnvs - 1;
  options.unroll_length = 2;
  options.num_overlapping_steps = 3;
  options.queue_capacity = 100;
  options.action_row_bytes = options.state_row_bytes = options.step_row_bytes = {1};
  return options;
}

// One step of the environments [first, first + n).
void Step(InferenceStore* store, int32_t first, int32_t n, uint8_t value) {
  const int32_t ids[kEnvs] = {first, first + 1, first + 2};
  // Environment 1 restarts once.
  const int64_t other = value < kSteps / 2 ? kRun : kRun + 1;
  const int64_t all_runs[kEnvs + 2] = {kRun, other, kRun};
  const int64_t* const runs = all_runs + first;
  const float rewards[kEnvs] = {1, 1, 1};
  const int32_t lengths[kEnvs] = {};
  const bool no[kEnvs] = {};
  const bool last = value % 3 == 2;
  const bool done[kEnvs] = {last, last, last};
  Rows actions(n), states(n);
  CHECK(store
            ->Begin(store->Ticket(), n, ids, runs, rewards, done, no, lengths, rewards, rewards,
                    {actions.data()}, {states.data()})
            .ok());
  const bool restarts = value == kSteps / 2;
  for (int32_t i = 0; i < n; ++i) {
    const uint8_t before = restarts && first + i == 1 ? 0 : value;
    CHECK(actions[i] == before && states[i] == before);
  }
  const Rows now(n, value + 1);
  store->End(n, ids, runs, {now.data()}, {now.data()}, {now.data()});
}

struct Result {
  std::vector<UnrollPtr> unrolls;
  std::vector<EpisodeStats> episodes;
};

// Requests `count` unrolls, one by one, behind those that `result` has.
void Request(InferenceStore* store, size_t count, Result* result) {
  for (size_t i = 0; i < count; ++i) {
    store->Dequeue(1, [result](std::vector<UnrollPtr> unrolls) {
      result->unrolls.push_back(std::move(unrolls[0]));
    });
  }
}

void Take(InferenceStore* store, Result* result) {
  Request(store, store->counters().queue_size, result);
  result->episodes = store->DrainEpisodes();
}

void CheckEqual(const Result& result, const Result& expected) {
  CHECK(result.unrolls.size() == expected.unrolls.size() && !expected.unrolls.empty());
  for (size_t i = 0; i < expected.unrolls.size(); ++i) {
    const Unroll &unroll = *result.unrolls[i], &other = *expected.unrolls[i];
    CHECK(unroll.env_id == other.env_id);
    CHECK(unroll.steps == other.steps);
    CHECK(unroll.state == other.state);
  }
  CHECK(result.episodes.size() == expected.episodes.size());
  for (size_t i = 0; i < expected.episodes.size(); ++i) {
    const EpisodeStats &episode = result.episodes[i], &other = expected.episodes[i];
    CHECK(episode.env_id == other.env_id);
    CHECK(episode.num_steps == other.num_steps);
    CHECK(episode.episode_return == other.episode_return);
    CHECK(episode.ended_at == other.ended_at);
  }
}

// `failing`: the number of the allocation that fails. Returns whether there were so many.
bool Act(int failing, Result* result) {
  InferenceStore store(Options(), {Rows(1, 0)});
  result->unrolls.clear();
  result->unrolls.reserve(kSteps);  // The callback's, which must not fail.
  Request(&store, 3, result);
  allocations_left = failing;
  for (uint8_t value = 0; value < kSteps; ++value) {
    try {
      Step(&store, 0, kEnvs, value);
    } catch (const std::bad_alloc&) {
      for (int32_t i = 0; i < kEnvs; ++i) Step(&store, i, 1, value);
    }
  }
  const bool failed = failing >= 0 && allocations_left < 0;
  allocations_left = -1;
  Take(&store, result);
  return failed;
}

// An environment that is several times in one call of `End`, as UnrollStore calls it.
bool Repeat(int failing, Result* result) {
  constexpr int32_t n = 13;
  const std::vector<int32_t> ids(n, 0);
  const std::vector<int64_t> runs(n, kRun);
  Rows rows;
  for (int32_t i = 0; i < n; ++i) rows.push_back(i + 1);
  InferenceStore store(Options(), {Rows(1, 0)});
  Step(&store, 0, 1, 0);
  bool failed = false;
  allocations_left = failing;
  const auto end = [&] {
    store.End(n, ids.data(), runs.data(), {rows.data()}, {rows.data()}, {rows.data()});
  };
  try {
    end();
  } catch (const std::bad_alloc&) {
    failed = true;
    end();
  }
  allocations_left = -1;
  result->unrolls.clear();
  Take(&store, result);
  for (const UnrollPtr& unroll : result->unrolls) {
    CHECK(unroll->state[0][0] + 1 == unroll->steps[0][0]);  // Each row was the state of the next.
  }
  return failed;
}

void FailEachAllocation(bool (*run)(int failing, Result* result)) {
  Result expected, result;
  CHECK(!run(-1, &expected));
  int failing = 0;
  while (run(failing, &result)) {
    CheckEqual(result, expected);
    ++failing;
  }
  CHECK(failing > 10);
}

}  // namespace

int main() {
  FailEachAllocation(Act);
  FailEachAllocation(Repeat);
  InferenceStore store(Options(), {Rows(1, 0)});
  std::vector<UnrollPtr> unrolls(1);
  allocations_left = 0;
  store.Recycle(std::move(unrolls));  // Throws nothing: spare memory is optional.
}
