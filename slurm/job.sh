#!/usr/bin/env bash
# A job of a run: the learner, or one of the array of actors. slurm/submit.sh submits it:
#
#   sbatch [OPTION ...] slurm/job.sh NAME=VALUE ... -- GAME AGENT ACTORS [ENVS_PER_ACTOR] [FLAG ...]
#
# with SEED_RL_ROLE and the other variables of `python -m seed_rl.cluster`, which it runs, and
#
#   PYTHON    a Python with SEED RL
#   LOGDIR    the run's directory
#   RUN       its name in the names of jobs
#   LEARNER   actors: the learner's job
#   NODES     several learners: their number. They are one job, each with a node of its own, and
#             start again together (seed_rl/cluster/together.py)
#
# Slurm restarts jobs whose node has failed. Those that end at their time limit requeue themselves:
# Slurm sends SIGTERM to the step (see --signal), the program saves and exits with code 75.
#
# Options of the command line and SBATCH_* variables win over these:
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@30
set -uo pipefail

# How often Slurm is asked again: for five minutes.
most_tries=10 retry_s=30
stopped=75

say() { printf '%s slurm job %s on %s: %s\n' "$(date +%T)" "$SLURM_JOB_ID" "$(hostname)" "$*" >&2; }

# Jobs inherit the submitting shell's variables, which may be of another run.
unset NODES SEED_RL_INDEX SEED_RL_INDEX_DIR SEED_RL_ADDRESS SEED_RL_BIND SEED_RL_PROXY SEED_RL_START
while [[ "$1" != -- ]]; do
  export "${1?}"
  shift
done
shift
user="$(id -un)"
me="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"
me="${me:-$SLURM_JOB_ID}"

# Runs the process of the run that this job is for; returns its exit code. A learner leaves a mark.
program() {
  local mark=() step=(srun --export=ALL --ntasks=1
    ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"})
  # shellcheck disable=SC2016 # The shell inside expands it.
  [[ "$SEED_RL_ROLE" != learner ]] || mark=(sh -c 'touch "$0"; exec "$@"' "$LOGDIR/slurm/ran")
  if [[ "$SEED_RL_ROLE" == learner && -n "${NODES:-}" ]]; then
    step=("$PYTHON" -m seed_rl.cluster.together "$NODES" "${step[@]}" --nodes=1 --relative='{}'
      --open-mode=append --output="$LOGDIR/slurm/learner-{}.log" --)
  fi
  "${step[@]}" "${mark[@]}" "$PYTHON" -m seed_rl.cluster "$@" "--stopped_exit_code=$stopped"
}

# Keeps a proxy in front of the learner, on this node, until the job ends. It publishes its address.
proxy() {
  local directory
  directory="$(mktemp --directory /tmp/seed_rl.XXXXXX)" # Paths of sockets are short.
  trap 'kill "$proxy_pid" 2> /dev/null; rm -rf "'"$directory"'"' EXIT
  export SEED_RL_PROXY="$directory/learner.sock"
  (
    trap 'kill $! 2> /dev/null; exit' TERM
    while :; do
      SEED_RL_ROLE=proxy TMPDIR="$directory" "$PYTHON" -m seed_rl.cluster "$@" &
      wait $!
      say "the proxy has ended; starting it again"
      sleep 2
    done
  ) &
  proxy_pid=$!
}

# Back into the queue, which ends this script. So does the user who cancels the job.
requeue() {
  local state tries
  say "$1; back into the queue"
  for ((tries = 0; tries < most_tries; tries++)); do # Slurm's controller may be away for a while.
    state="$(squeue --noheader --jobs="$me" --format=%T)" || state=unknown
    [[ "$state" == RUNNING || "$state" == unknown ]] || exit 0
    scontrol requeue "$me"
    sleep "$retry_s"
  done
  say "error: cannot requeue this job: see the lines above. Submit it again with the same command."
  exit 1
}

# What the last report in progress.json says.
report() { sed -n "s/.*\"$1\": \"\{0,1\}\([a-z0-9.]*\).*/\1/p" "$LOGDIR/progress.json" 2> /dev/null; }

cancel_actors() {
  local role
  for role in actor evaluator; do
    scancel --user="$user" --name="$RUN-$role-of-$SLURM_JOB_ID"
  done
}

learner() {
  local code frames tries=0 stalled="$LOGDIR/slurm/stalled"
  if [[ -e "$SEED_RL_SECRETS/proxy.pem" ]]; then
    if ! "$PYTHON" -m seed_rl.launch.proxy "$SEED_RL_SECRETS"; then
      cancel_actors # No proxy can run on this node, so none of them would reach the learner.
      exit 2
    fi
    proxy "$@"
  elif [[ -z "${NODES:-}" ]]; then # Several need the user's own --insecure.
    set -- "$@" --insecure # Only the cluster's machines reach its port, and the token is asked for.
  fi
  frames="$(report frames)"
  while :; do
    rm -f "$LOGDIR/slurm/ran"
    program "$@"
    code=$?
    # Without the mark, it never ran: srun did not reach Slurm's controller.
    if ((++tries == most_tries || code != 1)) || [[ -e "$LOGDIR/slurm/ran" ]]; then break; fi
    say "trying again in $retry_s s"
    sleep "$retry_s"
  done
  if [[ "$code" == "$stopped" ]]; then
    if [[ "$(report frames)" != "$frames" ]]; then
      rm -f "$stalled"
    elif [[ -e "$stalled" ]]; then
      rm -f "$stalled"
      say "error: no frames from start to time limit, twice in a row: raise --time, or see whether" \
        "actors run (squeue --me, $LOGDIR/slurm/actor-*.log)"
      cancel_actors
      exit 1
    else
      touch "$stalled"
    fi
    requeue "stopped before the end of training"
  fi
  say "the learner has ended with exit code $code; cancelling its actors"
  cancel_actors
  exit "$code"
}

# Whether the learner's job is running, or is waiting in the queue.
learner_queued() {
  local jobs
  for _ in {1..2}; do # A controller that has just started may not know all jobs yet.
    jobs="$(squeue --noheader --user="$user" --format=%A)" || return 0 # Slurm does not answer.
    if grep -qx "$LEARNER" <<< "$jobs"; then return 0; fi
    sleep 5
  done
  return 1
}

actor() {
  local code started decision pause_s failures=0
  while :; do
    started=$SECONDS
    program "$@"
    code=$?
    case "$code" in # As `actor_is_final` in seed_rl/launch/restarts.py; the last line above says why.
      0 | 3) exit "$code" ;;
      # A learner that started before this token was made refuses it, but will be restarted.
      2) [[ -e "$LOGDIR/slurm/ran" && "$SEED_RL_SECRETS/token" -nt "$LOGDIR/slurm/ran" ]] || exit "$code" ;;
    esac
    if ! learner_queued; then
      say "the learner's job $LEARNER has ended"
      exit 0
    fi
    pause_s=1
    case "$code" in
      "$stopped") requeue "stopped before the learner" ;;
      2) pause_s="$retry_s" ;;
      4) ;; # No learner: it may be back elsewhere.
      *)
        decision="$("$PYTHON" -m seed_rl.launch.restarts "$failures" "$((SECONDS - started))")" || {
          say "error: the actor has failed $((failures + 1)) times in a row; see above"
          exit "$code"
        }
        read -r failures pause_s <<< "$decision"
        ;;
    esac
    say "the actor has ended with exit code $code; starting it again"
    sleep "$pause_s"
  done
}

case "$SEED_RL_ROLE" in
  learner) learner "$@" ;;
  *) actor "$@" ;;
esac
