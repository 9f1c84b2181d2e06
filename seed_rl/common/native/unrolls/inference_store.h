// Per-environment state of central inference, and the unrolls it fills.
//
// The learner infers actions for many environments. Between two steps of an environment it must
// remember the recurrent state, the previous action, the episode statistics and the steps of the
// unroll being filled. All of that is kept here, in host memory, behind two calls per batch:
// `Begin` before the network runs, `End` after it. As a graph of scatters and gathers, the same
// work would cost a third of a small network's arithmetic.
//
// Contract
//  - Rows are opaque bytes; the caller knows dtypes and shapes. An unroll stores each field as
//    [step][row bytes], so a batch of unrolls is assembled time-major by plain copies.
//  - A run id names one life of an environment. A new run id resets everything kept for the
//    environment; `Begin` refuses calls of an earlier life, and `End` drops them.
//  - An unroll has overlap + unroll_length + 1 steps; its last overlap + 1 steps are the first of
//    the next one. It carries the recurrent state before its first step.
//  - Complete unrolls wait in a queue. Batches in flight may push it past its capacity: after
//    `End`, callers wait with `NotifyWhenBelowCapacity`. This is back-pressure; nothing is lost.
//  - Without memory, `Begin` and `End` throw std::bad_alloc. Callers may then begin the same steps
//    again, in the same or smaller batches: each counts and is recorded once.
//  - With `unrolls_per_step`, inference and training take turns. From the moment a training step's
//    unrolls are complete until `Trained`, steps may not begin: callers check `MayBegin` and wait
//    with `NotifyWhenMayBegin`, so the steps of the next unrolls come from the new weights. Batches
//    that had begun before finish. There is no wait while too few unrolls are complete, for any
//    reason, so dead actors block nothing.
//  - Thread-safe. Callbacks are never called with the lock held. Rows are copied without it: a call
//    claims its environments meanwhile. Calls that share an environment, as when an actor is
//    replaced while it waits for an action, wait for each other.

#ifndef SEED_RL_COMMON_NATIVE_UNROLLS_INFERENCE_STORE_H_
#define SEED_RL_COMMON_NATIVE_UNROLLS_INFERENCE_STORE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace seed_rl {

struct StoreOptions {
  int32_t num_envs = 0;
  int32_t num_training_envs = 0;  // Environments from this id on fill no unrolls.
  int32_t unroll_length = 0;
  int32_t num_overlapping_steps = 0;
  size_t queue_capacity = 0;             // Unrolls.
  size_t unrolls_per_step = 0;           // Steps wait while training has these; 0: they never do.
  std::vector<size_t> action_row_bytes;  // One entry per field of the action nest.
  std::vector<size_t> state_row_bytes;   // ... of the recurrent state.
  std::vector<size_t> step_row_bytes;    // ... of what is recorded at each step.

  int32_t steps_per_unroll() const { return num_overlapping_steps + unroll_length + 1; }
};

// What went wrong, for the caller.
struct StoreError {
  enum Code { kOk, kInvalidArgument, kFailedPrecondition };
  Code code = kOk;
  std::string message;
  bool ok() const { return code == kOk; }
};

// An episode: from one reset of an environment to the next.
struct EpisodeStats {
  int32_t env_id = 0;
  int64_t num_steps = 0;      // Agent steps, without the extra report of a truncated episode.
  double episode_return = 0;  // NaN after a reward that is not finite, or too large.
  double raw_return = 0;      // The same.
  int64_t ended_at = 0;  // Unroll rows of all training environments until then, this one's too.
  // Whether it reached its goal, as its last report says; NaN: the environment does not say.
  float success = std::numeric_limits<float>::quiet_NaN();
};

// A complete or growing unroll of one environment.
struct Unroll {
  int32_t env_id = 0;
  std::vector<std::vector<uint8_t>> steps;  // Per field: [steps_per_unroll][row bytes].
  std::vector<std::vector<uint8_t>> state;  // Per field: [row bytes], before the first step.
};
using UnrollPtr = std::unique_ptr<Unroll>;

class InferenceStore {
 public:
  using Rows = std::vector<const uint8_t*>;   // Per field: [batch][row bytes].
  using MutableRows = std::vector<uint8_t*>;  // Per field: [batch][row bytes].
  using UnrollsReady = std::function<void(std::vector<UnrollPtr>)>;  // Empty: closed or cancelled.

  // `initial_state`: per field, one row.
  InferenceStore(StoreOptions options, std::vector<std::vector<uint8_t>> initial_state);

  const StoreOptions& options() const { return options_; }

  // Whether steps may begin: not while a training step's unrolls are complete or trained on.
  bool MayBegin() const;
  // Calls `ready` once steps may begin (immediately if they may already).
  void NotifyWhenMayBegin(std::function<void()> ready);

  // The order of an attempt among all, for its `Begin`: those that waited may begin in another one.
  int64_t Ticket() { return ++tickets_; }

  // Admits a batch of steps: checks ids and lives, resets environments with a new life, updates
  // episode statistics, and copies out previous actions and recurrent states. Changes nothing when
  // it returns an error, but remembers in which order lives called. A step without an `End` may
  // begin again and counts once.
  StoreError Begin(int64_t ticket, int32_t batch, const int32_t* env_ids, const int64_t* run_ids,
                   const float* rewards, const bool* done, const bool* abandoned,
                   const int32_t* episode_steps, const float* raw_rewards, const float* successes,
                   const MutableRows& prev_actions, const MutableRows& states);

  // Records the steps admitted by `Begin`, or none if there is no memory for all. Drops rows of a
  // life that has been replaced meanwhile.
  void End(int32_t batch, const int32_t* env_ids, const int64_t* run_ids, const Rows& actions,
           const Rows& states, const Rows& steps);

  // Calls `ready` once the queue is within its capacity (immediately if it is already) or closed.
  void NotifyWhenBelowCapacity(std::function<void()> ready);

  // Passes `count` unrolls to `ready`, oldest first, as soon as that many are complete. Requests
  // are served in order; with `unrolls_per_step`, those beyond one training step after `Trained`.
  // Returns a token for `CancelDequeue`.
  int64_t Dequeue(size_t count, UnrollsReady ready);
  void CancelDequeue(int64_t token);

  // Signals that the training step on the dequeued unrolls is done, and its weights are in use.
  void Trained();

  // Takes back the memory of unrolls for later ones, as far as there is room.
  void Recycle(std::vector<UnrollPtr> unrolls);

  // Ends every wait. From now on `Dequeue` answers immediately and `End` drops unrolls.
  // `training_done`: steps should no longer begin, either.
  void Close(bool training_done);
  bool training_done() const { return training_done_; }

  // Returns the episodes that ended since the last call.
  std::vector<EpisodeStats> DrainEpisodes();

  struct Counters {
    int64_t queue_size = 0;
    int64_t steps = 0;    // Rows begun.
    int64_t unrolls = 0;  // Completed.
    int64_t lives = 0;    // Distinct lives begun.
    int64_t refused = 0;  // Batches refused.
    int64_t dropped = 0;  // Rows of replaced lives dropped.
    int64_t blocked = 0;  // Times inference had to wait for the queue.
  };
  Counters counters() const;

  // Seconds since each environment's last call; NaN before its first. The time that calls wait for
  // the network or for training does not count: it is unknown which actors would have called.
  std::vector<float> Silence() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Life {
    int64_t run_id;
    int64_t ticket;
  };
  struct Environment {
    bool claimed = false;  // By a call, which alone may use what is marked so.
    bool alive = false;
    bool begun = false;  // Without an `End`: if it begins again, the network failed in between.
    int64_t run_id = 0;
    int64_t ticket = 0;  // The first one of this life.
    Clock::time_point last_call;
    std::deque<Life> lives;  // The last ones that called: those of earlier tickets are over.
    EpisodeStats episode;
    std::vector<std::vector<uint8_t>> prev_action;  // Claimed.
    std::vector<std::vector<uint8_t>> state;        // Claimed.
    // States before the first steps of the unroll being filled and of those that begin inside it.
    // Claimed.
    std::list<std::vector<std::vector<uint8_t>>> first_states;
    UnrollPtr unroll;         // Claimed.
    int32_t num_steps = 0;    // Filled in `unroll`. Claimed.
    int64_t steps_lived = 0;  // Of this life, in all its unrolls. Claimed.
  };
  // A row of a batch that is being recorded. It holds the memory for that as nodes of lists, which
  // are spliced, so that recording allocates nothing.
  struct NewStep {
    Environment* env;
    int32_t row;
    bool fills = false;                // An unroll: it is of a training environment.
    bool needs_unroll = false;         // To be filled next.
    bool begins_window = false;        // Its state is the first of an unroll.
    std::list<UnrollPtr> unroll = {};  // Which it needs; once recorded, which it completed.
    std::list<std::vector<std::vector<uint8_t>>> first_state = {};
  };
  struct Waiter {
    int64_t token;
    size_t count;
    UnrollsReady ready;
  };

  bool IsKnown(int32_t env_id) const { return env_id >= 0 && env_id < options_.num_envs; }
  void Reserve(NewStep* step) const;
  void AddStep(NewStep* step, const Rows& steps) const;

  // These require mu_.
  void WaitForClaims(int32_t batch, const int32_t* env_ids, std::unique_lock<std::mutex>* lock);
  StoreError Check(int64_t ticket, int32_t batch, const int32_t* env_ids, const int64_t* run_ids);
  StoreError CheckLife(int64_t ticket, int32_t id, int64_t run_id);
  // The order of a life: the server tries the calls of a batch that failed again, one by one, with
  // later tickets.
  int64_t FirstTicket(Environment* env, int64_t run_id, int64_t ticket);
  void StartLife(Environment* env, int64_t run_id, int64_t ticket);
  void Plan(NewStep* step);
  std::vector<std::function<void()>> TakeReadyCallbacks();
  bool IsServable() const;
  bool TrainingIsDue() const;
  void UpdateTurn(std::vector<std::function<void()>>* ready);

  const StoreOptions options_;
  const std::vector<std::vector<uint8_t>> initial_state_;

  mutable std::mutex mu_;
  std::condition_variable released_;                     // A call has ended its claims.
  std::vector<Environment> envs_;                        // Guarded by mu_, and by claims.
  std::vector<int64_t> seen_in_batch_;                   // Guarded by mu_.
  int64_t batch_number_ = 0;                             // Guarded by mu_.
  std::list<UnrollPtr> queue_;                           // Guarded by mu_.
  std::list<UnrollPtr> spare_;                           // Guarded by mu_.
  std::deque<Waiter> dequeue_waiters_;                   // Guarded by mu_.
  std::vector<std::function<void()>> capacity_waiters_;  // Guarded by mu_.
  std::vector<std::function<void()>> begin_waiters_;     // Guarded by mu_.
  size_t num_in_training_ = 0;                           // Unrolls. Guarded by mu_.
  bool training_turn_ = false;                           // Steps may not begin. Guarded by mu_.
  Clock::time_point training_turn_start_;                // Guarded by mu_.
  std::deque<EpisodeStats> episodes_;                    // Guarded by mu_.
  int64_t training_steps_ = 0;                           // As `ended_at`. Guarded by mu_.
  Counters counters_;                                    // Guarded by mu_.
  Clock::time_point newest_call_;                        // Guarded by mu_.
  int64_t next_token_ = 0;                               // Guarded by mu_.
  bool closed_ = false;                                  // Guarded by mu_.
  std::atomic<bool> training_done_{false};
  std::atomic<int64_t> tickets_{0};
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_UNROLLS_INFERENCE_STORE_H_
