#include "seed_rl/common/native/unrolls/inference_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

namespace seed_rl {
namespace {

// Earlier lives remembered per environment, to refuse their late calls. More restarts of an actor
// while one of its first calls is still in flight are not handled.
constexpr size_t kLives = 16;

// Episodes kept until a logger drains them; the oldest are dropped first.
constexpr size_t kMaxEpisodes = 1 << 16;

// `LARGEST` of common/types.py.
constexpr float kLargest = 1e9f;

// A run of the network that takes longer is considered failed: its `End` will not come.
constexpr std::chrono::minutes kLongestRun(5);

// Makes the statistics of an episode NaN if a reward is not finite, or too large.
float Bounded(float reward) {
  return std::abs(reward) <= kLargest ? reward : std::numeric_limits<float>::quiet_NaN();
}

std::vector<std::vector<uint8_t>> ZeroRows(const std::vector<size_t>& row_bytes) {
  std::vector<std::vector<uint8_t>> rows;
  rows.reserve(row_bytes.size());
  for (size_t bytes : row_bytes) rows.emplace_back(bytes, 0);
  return rows;
}

// Copies fields of one row each to or from a batch's rows at `row`.
void CopyTo(const InferenceStore::MutableRows& rows, int32_t row,
            const std::vector<std::vector<uint8_t>>& fields) {
  for (size_t f = 0; f < rows.size(); ++f) {
    std::memcpy(rows[f] + row * fields[f].size(), fields[f].data(), fields[f].size());
  }
}

void CopyFrom(const InferenceStore::Rows& rows, int32_t row,
              std::vector<std::vector<uint8_t>>* fields) {
  for (size_t f = 0; f < rows.size(); ++f) {
    std::vector<uint8_t>& field = (*fields)[f];
    std::memcpy(field.data(), rows[f] + row * field.size(), field.size());
  }
}

}  // namespace

InferenceStore::InferenceStore(StoreOptions options,
                               std::vector<std::vector<uint8_t>> initial_state)
    : options_(std::move(options)),
      initial_state_(std::move(initial_state)),
      envs_(options_.num_envs),
      seen_in_batch_(options_.num_envs, 0) {
  for (int32_t i = 0; i < options_.num_envs; ++i) {
    envs_[i].episode.env_id = i;
    envs_[i].prev_action = ZeroRows(options_.action_row_bytes);
    envs_[i].state = initial_state_;
  }
}

void InferenceStore::WaitForClaims(int32_t batch, const int32_t* env_ids,
                                   std::unique_lock<std::mutex>* lock) {
  released_.wait(*lock, [=] {
    return std::none_of(env_ids, env_ids + batch,
                        [this](int32_t id) { return IsKnown(id) && envs_[id].claimed; });
  });
}

StoreError InferenceStore::Check(int64_t ticket, int32_t batch, const int32_t* env_ids,
                                 const int64_t* run_ids) {
  ++batch_number_;
  StoreError first;
  for (int32_t i = 0; i < batch; ++i) {
    const int32_t id = env_ids[i];
    StoreError error;
    if (!IsKnown(id)) {
      error = {StoreError::kInvalidArgument,
               "Environment id " + std::to_string(id) + " is not in [0, " +
                   std::to_string(options_.num_envs) +
                   "): start the learner with a larger --num_envs, or the actors with a smaller "
                   "--task or --env_batch_size."};
    } else if (seen_in_batch_[id] == batch_number_) {
      error = {StoreError::kInvalidArgument,
               "Duplicate environment ids: " + std::to_string(id) + " is in one batch twice."};
    } else {
      seen_in_batch_[id] = batch_number_;
      error = CheckLife(ticket, id, run_ids[i]);  // Of all rows: each first ticket counts.
    }
    if (first.ok()) first = std::move(error);
  }
  return first;
}

StoreError InferenceStore::CheckLife(int64_t ticket, int32_t id, int64_t run_id) {
  Environment& env = envs_[id];
  if (env.alive && env.run_id == run_id) return {};
  if (FirstTicket(&env, run_id, ticket) >= env.ticket) return {};
  return {StoreError::kFailedPrecondition,
          "Environment " + std::to_string(id) +
              " has been taken over by a newer actor. If two actors share a --task, give each its "
              "own."};
}

int64_t InferenceStore::FirstTicket(Environment* env, int64_t run_id, int64_t ticket) {
  for (const Life& life : env->lives) {
    if (life.run_id == run_id) return life.ticket;
  }
  env->lives.push_back({run_id, ticket});
  if (env->lives.size() > kLives) env->lives.pop_front();
  return ticket;
}

void InferenceStore::StartLife(Environment* env, int64_t run_id, int64_t ticket) {
  if (env->alive) FirstTicket(env, env->run_id, env->ticket);  // It may have been forgotten.
  env->alive = true;
  env->run_id = run_id;
  env->ticket = FirstTicket(env, run_id, ticket);
  env->episode = {env->episode.env_id};
  env->num_steps = 0;
  env->steps_lived = 0;
  env->first_states.clear();
  env->state = initial_state_;
  for (auto& field : env->prev_action) std::fill(field.begin(), field.end(), 0);
  ++counters_.lives;
}

StoreError InferenceStore::Begin(int64_t ticket, int32_t batch, const int32_t* env_ids,
                                 const int64_t* run_ids, const float* rewards, const bool* done,
                                 const bool* abandoned, const int32_t* episode_steps,
                                 const float* raw_rewards, const float* successes,
                                 const MutableRows& prev_actions, const MutableRows& states) {
  const Clock::time_point now = Clock::now();
  std::unique_lock<std::mutex> lock(mu_);
  WaitForClaims(batch, env_ids, &lock);
  StoreError error = Check(ticket, batch, env_ids, run_ids);
  if (!error.ok()) {
    ++counters_.refused;
    return error;
  }
  newest_call_ = std::max(newest_call_, now);
  for (int32_t i = 0; i < batch; ++i) {
    Environment& env = envs_[env_ids[i]];
    env.last_call = now;
    if (!env.alive || env.run_id != run_ids[i]) {
      // The first report of a life is the observation of a reset: no step led to it.
      StartLife(&env, run_ids[i], ticket);
    } else if (!env.begun) {
      EpisodeStats& episode = env.episode;
      // `done` in the middle of a game ends only the learner's episode (a lost life, for example).
      // Statistics cover the whole game.
      const bool ends = done[i] && (abandoned[i] || episode_steps[i] == 0);
      if (ends) episodes_.emplace_back();  // First, because it may throw.
      episode.episode_return += Bounded(rewards[i]);
      episode.raw_return += Bounded(raw_rewards[i]);
      // The last step of an abandoned episode was already reported as an ordinary one; its reset
      // fills a row of the unroll, like a step.
      if (!abandoned[i]) ++episode.num_steps;
      if (env_ids[i] < options_.num_training_envs) ++training_steps_;
      if (ends) {
        episode.ended_at = training_steps_;
        episode.success = successes[i];
        episodes_.back() = episode;
        if (episodes_.size() > kMaxEpisodes) episodes_.pop_front();
        episode = {episode.env_id};
      }
    }
    env.begun = true;
  }
  // Now that nothing can throw: nobody would end the claims.
  for (int32_t i = 0; i < batch; ++i) envs_[env_ids[i]].claimed = true;
  counters_.steps += batch;
  lock.unlock();
  for (int32_t i = 0; i < batch; ++i) {
    CopyTo(prev_actions, i, envs_[env_ids[i]].prev_action);
    CopyTo(states, i, envs_[env_ids[i]].state);
  }
  lock.lock();
  for (int32_t i = 0; i < batch; ++i) envs_[env_ids[i]].claimed = false;
  lock.unlock();
  released_.notify_all();
  return {};
}

// Counts a step, and finds out what memory it needs.
void InferenceStore::Plan(NewStep* step) {
  const int64_t lived = step->env->steps_lived++;
  const int64_t length = options_.unroll_length;
  const int64_t of_first_unroll = lived + 1 - options_.steps_per_unroll();
  const bool completes = of_first_unroll >= 0 && of_first_unroll % length == 0;
  step->fills = true;
  step->begins_window = lived % length == 0;
  step->needs_unroll = completes || (lived == 0 && !step->env->unroll);
  if (step->needs_unroll && !spare_.empty()) {
    step->unroll.splice(step->unroll.end(), spare_, std::prev(spare_.end()));
  }
}

// Allocates what a step needs.
void InferenceStore::Reserve(NewStep* step) const {
  if (step->needs_unroll && step->unroll.empty()) {
    auto unroll = std::make_unique<Unroll>();
    for (size_t bytes : options_.step_row_bytes) {
      unroll->steps.emplace_back(bytes * options_.steps_per_unroll());
    }
    step->unroll.push_back(std::move(unroll));
  }
  if (step->begins_window) step->first_state.push_back(initial_state_);
}

// Appends a row to its environment's unroll; the environment's state is still that before it.
// Allocates nothing.
void InferenceStore::AddStep(NewStep* step, const Rows& steps) const {
  Environment* const env = step->env;
  if (step->begins_window) {
    step->first_state.front() = env->state;
    env->first_states.splice(env->first_states.end(), step->first_state);
  }
  if (!env->unroll) {
    env->unroll = std::move(step->unroll.front());
    step->unroll.clear();
  }
  for (size_t f = 0; f < steps.size(); ++f) {
    const size_t bytes = options_.step_row_bytes[f];
    std::memcpy(env->unroll->steps[f].data() + env->num_steps * bytes, steps[f] + step->row * bytes,
                bytes);
  }
  ++env->num_steps;
  if (env->num_steps < options_.steps_per_unroll()) return;

  UnrollPtr& fresh = step->unroll.front();
  const int32_t shared = options_.num_overlapping_steps + 1;
  for (size_t f = 0; f < steps.size(); ++f) {
    const size_t bytes = options_.step_row_bytes[f];
    const uint8_t* from = env->unroll->steps[f].data() + options_.unroll_length * bytes;
    std::memcpy(fresh->steps[f].data(), from, shared * bytes);
  }
  env->unroll->env_id = env->episode.env_id;
  env->unroll->state = std::move(env->first_states.front());
  env->first_states.pop_front();
  env->num_steps = shared;
  env->unroll.swap(fresh);
}

void InferenceStore::End(int32_t batch, const int32_t* env_ids, const int64_t* run_ids,
                         const Rows& actions, const Rows& states, const Rows& steps) {
  std::vector<NewStep> news;
  news.reserve(batch);
  std::unique_lock<std::mutex> lock(mu_);
  WaitForClaims(batch, env_ids, &lock);
  for (int32_t i = 0; i < batch; ++i) {
    if (!IsKnown(env_ids[i])) continue;
    Environment& env = envs_[env_ids[i]];
    if (!env.alive || env.run_id != run_ids[i]) {
      ++counters_.dropped;
      continue;
    }
    env.claimed = true;
    news.push_back({&env, i});
    if (env_ids[i] < options_.num_training_envs) Plan(&news.back());
  }
  lock.unlock();
  std::exception_ptr failed;
  try {
    for (NewStep& step : news) Reserve(&step);
  } catch (...) {
    failed = std::current_exception();  // Out of memory. Later calls must not wait for this one.
  }
  if (!failed) {
    for (NewStep& step : news) {
      if (step.fills) AddStep(&step, steps);
      CopyFrom(actions, step.row, &step.env->prev_action);
      CopyFrom(states, step.row, &step.env->state);
    }
  }
  lock.lock();
  for (NewStep& step : news) {
    step.env->claimed = false;
    if (failed) {
      step.env->steps_lived -= step.fills;
      spare_.splice(spare_.end(), step.unroll);
      continue;
    }
    step.env->begun = false;
    counters_.unrolls += static_cast<int64_t>(step.unroll.size());
    if (!closed_) queue_.splice(queue_.end(), step.unroll);
  }
  released_.notify_all();
  if (failed) std::rethrow_exception(failed);
  const auto callbacks = TakeReadyCallbacks();
  lock.unlock();
  for (const auto& callback : callbacks) callback();
}

// Callbacks whose wait is over, to call without the lock. Without memory, they wait for the next
// call of the store.
std::vector<std::function<void()>> InferenceStore::TakeReadyCallbacks() {
  std::vector<std::function<void()>> ready;
  try {
    ready.reserve(dequeue_waiters_.size() + capacity_waiters_.size() + begin_waiters_.size());
    while (IsServable()) {
      const Waiter& waiter = dequeue_waiters_.front();
      auto unrolls = std::make_shared<std::vector<UnrollPtr>>();
      unrolls->reserve(waiter.count);
      ready.push_back([unrolls, call = waiter.ready] { call(std::move(*unrolls)); });
      // From here on, nothing allocates.
      if (!closed_) {
        for (size_t i = 0; i < waiter.count; ++i) {
          unrolls->push_back(std::move(queue_.front()));
          queue_.pop_front();
        }
        num_in_training_ += waiter.count;
      }
      dequeue_waiters_.pop_front();
    }
  } catch (const std::bad_alloc&) {
    if (ready.capacity() == 0) return ready;
  }
  if (closed_ || queue_.size() <= options_.queue_capacity) {
    for (auto& waiter : capacity_waiters_) ready.push_back(std::move(waiter));
    capacity_waiters_.clear();
  }
  UpdateTurn(&ready);
  return ready;
}

// Whether the first request can be served now.
bool InferenceStore::IsServable() const {
  if (dequeue_waiters_.empty() || closed_) return !dequeue_waiters_.empty();
  const size_t count = dequeue_waiters_.front().count;
  const size_t per_step = options_.unrolls_per_step;
  return queue_.size() >= count && (per_step == 0 || num_in_training_ + count <= per_step);
}

bool InferenceStore::TrainingIsDue() const {
  return !closed_ && options_.unrolls_per_step > 0 &&
         num_in_training_ + queue_.size() >= options_.unrolls_per_step;
}

// Begins or ends training's turn; at its end, adds the callbacks of the steps that waited.
void InferenceStore::UpdateTurn(std::vector<std::function<void()>>* ready) {
  if (TrainingIsDue() == training_turn_) return;
  training_turn_ = !training_turn_;
  const Clock::time_point now = Clock::now();
  if (training_turn_) {
    training_turn_start_ = now;
    return;
  }
  // No environment could call meanwhile, so the clocks of their silence continue from here.
  const auto turn = now - training_turn_start_;
  for (Environment& env : envs_) env.last_call += turn;
  newest_call_ += turn;
  for (auto& waiter : begin_waiters_) ready->push_back(std::move(waiter));
  begin_waiters_.clear();
}

bool InferenceStore::MayBegin() const {
  std::lock_guard<std::mutex> lock(mu_);
  return !training_turn_;
}

void InferenceStore::NotifyWhenMayBegin(std::function<void()> ready) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (training_turn_) {
      begin_waiters_.push_back(std::move(ready));
      return;
    }
  }
  ready();
}

void InferenceStore::Trained() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mu_);
    num_in_training_ = 0;
    callbacks = TakeReadyCallbacks();
  }
  for (auto& callback : callbacks) callback();
}

void InferenceStore::NotifyWhenBelowCapacity(std::function<void()> ready) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!closed_ && queue_.size() > options_.queue_capacity) {
      ++counters_.blocked;
      capacity_waiters_.push_back(std::move(ready));
      return;
    }
  }
  ready();
}

int64_t InferenceStore::Dequeue(size_t count, UnrollsReady ready) {
  std::vector<std::function<void()>> callbacks;
  int64_t token;
  {
    std::lock_guard<std::mutex> lock(mu_);
    token = next_token_++;
    dequeue_waiters_.push_back({token, count, std::move(ready)});
    callbacks = TakeReadyCallbacks();
  }
  for (auto& callback : callbacks) callback();
  return token;
}

void InferenceStore::CancelDequeue(int64_t token) {
  UnrollsReady ready;
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mu_);
    auto found = std::find_if(dequeue_waiters_.begin(), dequeue_waiters_.end(),
                              [token](const Waiter& w) { return w.token == token; });
    if (found == dequeue_waiters_.end()) return;
    ready = std::move(found->ready);
    dequeue_waiters_.erase(found);
    callbacks = TakeReadyCallbacks();  // The next request may be smaller.
  }
  ready({});
  for (auto& callback : callbacks) callback();
}

void InferenceStore::Recycle(std::vector<UnrollPtr> unrolls) try {
  std::lock_guard<std::mutex> lock(mu_);
  for (auto& unroll : unrolls) {
    if (spare_.size() >= static_cast<size_t>(options_.num_envs)) return;
    spare_.push_back(std::move(unroll));
  }
} catch (const std::bad_alloc&) {  // Later ones are allocated.
}

void InferenceStore::Close(bool training_done) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (training_done) training_done_ = true;
    closed_ = true;
    queue_.clear();
    callbacks = TakeReadyCallbacks();
  }
  for (auto& callback : callbacks) callback();
}

std::vector<EpisodeStats> InferenceStore::DrainEpisodes() {
  std::lock_guard<std::mutex> lock(mu_);
  std::vector<EpisodeStats> episodes(episodes_.begin(), episodes_.end());
  episodes_.clear();
  return episodes;
}

InferenceStore::Counters InferenceStore::counters() const {
  std::lock_guard<std::mutex> lock(mu_);
  Counters counters = counters_;
  counters.queue_size = static_cast<int64_t>(queue_.size());
  return counters;
}

std::vector<float> InferenceStore::Silence() const {
  std::vector<float> silence(envs_.size(), std::numeric_limits<float>::quiet_NaN());
  std::lock_guard<std::mutex> lock(mu_);
  const Clock::time_point now = training_turn_ ? training_turn_start_ : Clock::now();
  const bool infers = std::any_of(envs_.begin(), envs_.end(), [this](const Environment& env) {
    return env.begun && env.last_call == newest_call_;
  });
  Clock::time_point end = std::max(now, newest_call_);
  if (!capacity_waiters_.empty()) {
    end = newest_call_;
  } else if (infers) {
    end = std::max(newest_call_, now - kLongestRun);
  }
  for (size_t i = 0; i < envs_.size(); ++i) {
    if (!envs_[i].alive) continue;
    silence[i] = std::chrono::duration<float>(end - envs_[i].last_call).count();
  }
  return silence;
}

}  // namespace seed_rl
