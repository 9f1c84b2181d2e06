// Threads begin, end and dequeue steps of environments that they partly share, in lives that
// replace each other, for sanitizers to watch. Each row holds one value, so that mixed rows are
// seen, too.
//
// Built and run by scripts/stress.sh. Usage: store [ROUNDS]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "seed_rl/common/native/unrolls/inference_store.h"
#include "tests/helpers/check.h"

namespace {

using seed_rl::InferenceStore;
using seed_rl::StoreOptions;
using seed_rl::UnrollPtr;

constexpr int32_t kEnvs = 8;
constexpr int32_t kBatch = 4;
constexpr size_t kRowBytes = 1000;
constexpr int kThreads = 4;
constexpr int kCallsPerRound = 2000;

// One value per row of a batch, [kBatch][kRowBytes].
struct Values {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBatch * kRowBytes);
  void Set(uint8_t value) { bytes.assign(bytes.size(), value); }
  void CheckRows() const {
    for (size_t i = 1; i < bytes.size(); ++i) {
      CHECK(i % kRowBytes == 0 || bytes[i] == bytes[i - 1]);
    }
  }
};

void CheckUnroll(const seed_rl::Unroll& unroll) {
  for (const auto& field : unroll.steps) {
    for (size_t i = 1; i < field.size(); ++i) {
      CHECK(i % kRowBytes == 0 || field[i] == field[i - 1]);
    }
  }
}

void Act(InferenceStore* store, int seed) {
  std::mt19937 random(seed);
  int64_t run_id = seed;
  const std::vector<float> floats(kBatch, 1);
  const bool flags[kBatch] = {};
  const std::vector<int32_t> ones(kBatch, 1);
  Values actions, states, recorded;
  for (int call = 0; call < kCallsPerRound; ++call) {
    if (random() % 8 == 0) run_id += kThreads;  // A new life.
    const int32_t first = random() % (kEnvs - kBatch + 1);
    const int32_t ids[kBatch] = {first, first + 1, first + 2, first + 3};
    const std::vector<int64_t> run_ids(kBatch, run_id);
    if (!store
             ->Begin(store->Ticket(), kBatch, ids, run_ids.data(), floats.data(), flags, flags,
                     ones.data(), floats.data(), floats.data(), {actions.bytes.data()},
                     {states.bytes.data()})
             .ok()) {
      run_id += kThreads;
      continue;
    }
    actions.CheckRows();
    states.CheckRows();
    recorded.Set(random() % 256);
    store->End(kBatch, ids, run_ids.data(), {recorded.bytes.data()}, {recorded.bytes.data()},
               {recorded.bytes.data()});
  }
}

// Takes unrolls until the store is closed.
void Train(InferenceStore* store) {
  while (true) {
    std::promise<std::vector<UnrollPtr>> promise;
    store->Dequeue(
        2, [&promise](std::vector<UnrollPtr> unrolls) { promise.set_value(std::move(unrolls)); });
    std::vector<UnrollPtr> unrolls = promise.get_future().get();
    if (unrolls.empty()) return;
    for (const UnrollPtr& unroll : unrolls) CheckUnroll(*unroll);
    store->Recycle(std::move(unrolls));
    store->Trained();
  }
}

void Round(int round) {
  StoreOptions options;
  options.num_envs = kEnvs;
  options.num_training_envs = kEnvs - 1;
  options.unroll_length = 3;
  options.num_overlapping_steps = round % 3;
  options.queue_capacity = 4;
  options.action_row_bytes = options.state_row_bytes = options.step_row_bytes = {kRowBytes};
  InferenceStore store(options, {std::vector<uint8_t>(kRowBytes, 7)});
  std::thread trainer(Train, &store);
  std::vector<std::thread> actors;
  for (int i = 0; i < kThreads; ++i) actors.emplace_back(Act, &store, round * kThreads + i);
  for (int i = 0; i < 100; ++i) {
    store.counters();
    store.Silence();
    store.DrainEpisodes();
    std::this_thread::yield();
  }
  for (std::thread& actor : actors) actor.join();
  store.Close(false);
  trainer.join();
  CHECK(store.counters().unrolls > 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  for (int round = 0; round < rounds; ++round) Round(round);
  std::printf("store: %d rounds\n", rounds);
}
