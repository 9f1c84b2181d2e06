#!/usr/bin/env bash
# Trains on a Slurm cluster: a job for the learner and an array of jobs for the actors.
#
#   slurm/submit.sh [OPTION ...] GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#   slurm/submit.sh [OPTION ...] PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#
# for instance
#
#   slurm/submit.sh --account=me --learner-gres=gpu:1 --learner-cpus-per-task=8 --time=1-0 \
#     atari vtrace 32 4 --game=Pong --logdir=/shared/pong
#
# The arguments from GAME on are those of ./run_local.sh. The run's directory (--logdir, default
# runs/GAME-AGENT-ENVIRONMENT) must be on a file system that this machine and the nodes share. With
# --learners=N among them, the learner's job has N nodes, with a learner on each; it needs --insecure.
#
# Options:
#   --evaluators=N        jobs whose environments only evaluate (default: 0)
#   --secrets=DIR         directory with the token and certificates of the run, which only you can
#                         read (default: LOGDIR/slurm/secrets, with a new token and without TLS).
#                         With proxy.pem, HAProxy runs in front of the learner, on its node
#   --dry_run             print the commands, and do nothing
#   --learner-NAME=VALUE  option of sbatch for the learner's job, such as --learner-partition=gpu
#   --actor-NAME=VALUE    option of sbatch for the jobs of actors and evaluators
#   --NAME=VALUE          option of sbatch for all jobs, such as --time, --partition or --account
#
# The SBATCH_* variables of sbatch count too, such as SBATCH_ACCOUNT. Unless told otherwise, a learner
# gets --cpus-per-task=4 --mem=8G (or --mem-per-cpu, --mem-per-gpu), an actor --cpus-per-task=1
# --mem=2G, and each --signal=TERM@30: so many seconds (to a minute more) before its time limit it
# saves and goes back into the queue.
# The same command resumes a run. PYTHON is the Python of the jobs, with SEED RL (default: .venv).
#
# Exit codes: 0: submitted; 1: Slurm refused; 2: something to fix, which the message says.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"

fail() { printf 'error: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

evaluators=0 secrets='' dry_run=''
learner_options=() actor_options=()
last=''
while [[ $# -gt 0 && "$1" == -* ]]; do
  last=''
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --dry_run | --dry-run) dry_run=1 ;;
    --evaluators=*) evaluators="${1#*=}" ;;
    --secrets=*) secrets="${1#*=}" secrets="$(realpath -m -- "${secrets/#\~\//$HOME/}")" ;;
    --learner-*) learner_options+=("--${1#--learner-}") last="$1" ;;
    --actor-*) actor_options+=("--${1#--actor-}") last="$1" ;;
    --array=* | --dependency=* | --job-name=* | --output=* | --error=* | --wrap=* | --parsable)
      fail "${1%%=*} cannot be set here: $(basename "$0") sets it" ;;
    --?*) learner_options+=("$1") actor_options+=("$1") last="$1" ;;
    *) fail "$1: write options of sbatch in full, as --name=value (see --help)" ;;
  esac
  shift
done
if [[ $# -gt 3 && -n "$last" && "$last" != *=* && "$1" != *.py && ! -d "$root/seed_rl/$1" ]]; then
  fail "write $last=$1, with an equals sign, or fix the name of the game '$1' (see --help)"
fi
[[ $# -gt 0 ]] || fail "GAME AGENT ACTORS are missing (see --help)"
[[ "$evaluators" =~ ^[0-9]+$ ]] || fail "--evaluators must be a number, not '$evaluators'"
[[ -n "$dry_run" ]] || command -v sbatch > /dev/null ||
  fail "there is no sbatch here: run this on a machine of the cluster from which jobs are submitted" \
    "(its login node), or with a small Slurm on this one: slurm/local_cluster.sh slurm/submit.sh ..."
extra="$1"
[[ "$extra" != *.py ]] || extra=gym
[[ -x "$python" ]] ||
  fail "there is no $python: run scripts/setup.sh $extra first, on a file system that the nodes" \
    "share, or say PYTHON=... (the path of the Python of the jobs)"

# The program checks its flags, and names the run's directory.
check() {
  env -u SEED_RL_ADDRESS_FILE -u SEED_RL_BIND -u SEED_RL_PROXY -u SEED_RL_START \
    SEED_RL_ROLE=learner SEED_RL_INDEX=0 SEED_RL_ADDRESS='localhost:{}1' \
    SEED_RL_SECRETS="$secrets" SEED_RL_EVALUATORS="$evaluators" \
    "$python" -m seed_rl.cluster "$@" --only_check_args
}
for argument in "$@"; do # Before a bucket is read.
  [[ "$argument" != --logdir=*://* && "$argument" != --job-dir=*://* ]] ||
    fail "$argument: learner and actors meet in a directory: name one"
done
checked="$(mktemp)"
trap 'rm -f "$checked"' EXIT
if ! answer="$(check "$@" 2> "$checked")"; then
  fail "$(sed -n 's/^error: //p' "$checked" | grep . || cat "$checked")"
fi
answer="$(sed -n 's/.*\({"logdir": .*}\).*/\1/p' <<< "$answer" | tail -n 1)"
field() { "$python" -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]] or "")' "$1"; }
logdir="$(field logdir <<< "$answer")"
refusal="$(field refusal <<< "$answer")"
[[ -z "$refusal" ]] || fail "$refusal"
[[ "$logdir" != *://* ]] || fail "--logdir=$logdir: learner and actors meet in a directory: name one"
logdir="$(realpath -m -- "$logdir")"
# Without their --logdir, which may be relative: jobs get its full path.
arguments=()
for argument in "$@"; do
  [[ "$argument" == --logdir=* || "$argument" == --job-dir=* ]] || arguments+=("$argument")
done
learners=1
for argument in "${arguments[@]}"; do
  [[ "$argument" != --learners=* ]] || learners="${argument#*=}"
done
several=()
[[ "$learners" =~ ^[1-9][0-9]*$ ]] || fail "--learners=$learners is not a number, such as 2."
if ((learners > 1)); then
  [[ ! -e "$secrets/proxy.pem" ]] ||
    fail "several learners run without a proxy: remove $secrets/proxy.pem, or name another --secrets"
  for option in "${learner_options[@]}"; do
    [[ "$option" != --nodes* && "$option" != --ntasks* ]] ||
      fail "${option%%=*} cannot be set with --learners=$learners: each learner has a node of its own"
  done
  several=("--nodes=$learners" "--ntasks=$learners" --ntasks-per-node=1)
fi
actors=''
for argument in "${arguments[@]:1}"; do
  [[ "$argument" =~ ^[0-9]+$ ]] && { actors="$argument"; break; }
done

folder="$logdir/slurm"
name="$(basename "$logdir" | tr -c '[:alnum:]_.\n-' _)"
make_secrets() {
  [[ -e "$secrets/token" ]] && return
  (umask 077 && mkdir -p "$secrets" && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$secrets/token") ||
    fail "cannot write a token to $secrets"
}
# Refuses a directory that a learner holds: one in the queue, or of ./run_local.sh.
check_free() {
  local id state code=0
  if id="$(cat "$folder/learner_job" 2> /dev/null)"; then
    state="$(squeue --noheader --jobs="$id" --format=%T 2> /dev/null)" || state=''
    [[ -z "$state" ]] ||
      fail "the run in $logdir is in the queue already: learner $id ($state). To stop it: scancel $id" \
        "(it saves); the same command then resumes it. Or choose another --logdir=DIR"
  fi
  [[ ! -e "$logdir/learner.pid" ]] ||
    flock --nonblock --conflict-exit-code=75 "$logdir/learner.pid" true 2> /dev/null || code=$?
  ((code != 75)) ||
    fail "a learner is already running in $logdir (process $(cat "$logdir/learner.pid")). Stop it," \
      "for instance with ./stop_local.sh $logdir, or choose another --logdir=DIR"
}
if [[ -z "$dry_run" ]]; then
  { mkdir -p "$folder" && touch "$folder"; } 2> /dev/null ||
    fail "cannot write to $folder: choose a directory of yours that the nodes share: --logdir=DIR"
  case "$(stat --file-system --format=%T "$logdir")" in
    tmpfs | ramfs | ext2/ext3 | xfs | btrfs | overlayfs)
      echo "warning: $logdir seems to be on a disk of this machine. If nodes do not see it, their" \
        "jobs fail at once, without a log: choose a shared directory with --logdir=DIR." >&2 ;;
  esac
  check_free
fi
if [[ -z "$secrets" ]]; then
  secrets="$folder/secrets"
  [[ -n "$dry_run" ]] || make_secrets
elif [[ -n "$(find -L "$secrets" -maxdepth 0 -perm /077)" ]]; then
  fail "others can read $secrets: chmod 700 $secrets"
fi

# Prints a command, one option a line.
show() {  # COMMAND ...
  printf '%q' "$1"
  while shift && [[ "$1" != -- ]]; do printf ' \\\n  %q' "$1"; done
  printf ' \\\n '
  printf ' %q' "$@"
  echo
}

# Sends a job to Slurm and prints its id; with --dry_run, prints the command.
send() {  # COMMAND ...
  if [[ -n "$dry_run" ]]; then
    show "$@" >&3
    return
  fi
  local id
  if ! id="$("$@" 2> "$checked")"; then
    printf 'error: Slurm refused the job: %s\n' "$(sed 's/^sbatch: error: //' "$checked" | paste -sd ' ')" >&2
    ! grep -qi partition "$checked" ||
      printf 'Partitions here: %s. Choose with --partition, --learner-partition, --actor-partition.\n' \
        "$(sinfo --noheader --format=%R | paste -sd ' ')" >&2
    return 1
  fi
  echo "${id%%;*}" # (Of several clusters, it is ID;CLUSTER.)
}
exec 3>&1

# In a shell that belongs to a job, they describe it, and steps of our jobs would be started likewise.
if [[ -n "${SLURM_JOB_ID:-}" ]]; then
  for variable in $(compgen -e SLURM_); do
    [[ "$variable" == SLURM_@(CONF|CLUSTERS|JWT) ]] || unset "$variable"
  done
fi
# Slurm refuses two ways to set memory.
sets_memory() {  # OPTION ...
  [[ -n "${SBATCH_MEM_PER_NODE:-}${SBATCH_MEM_PER_CPU:-}${SBATCH_MEM_PER_GPU:-}" || " $*" =~ \ --mem(-per-cpu|-per-gpu)?[=\ ] ]]
}
sets_memory "${learner_options[@]}" || learner_options+=(--mem=8G)
sets_memory "${actor_options[@]}" || actor_options+=(--mem=2G)

settings=("RUN=$name" "SEED_RL_ADDRESS_FILE=$folder/address" "SEED_RL_SECRETS=$secrets"
  "SEED_RL_EVALUATORS=$evaluators" "PYTHON=$python" "LOGDIR=$logdir")
((learners == 1)) || settings+=("NODES=$learners")
arguments+=("--logdir=$logdir")
learner="$(send sbatch --parsable --job-name="$name-learner" --output="$folder/learner.log" \
  --cpus-per-task=4 "${several[@]}" "${learner_options[@]}" \
  "$root/slurm/job.sh" "${settings[@]}" SEED_RL_ROLE=learner -- "${arguments[@]}")"
if [[ -n "$dry_run" ]]; then learner=LEARNER_JOB; else echo "$learner" > "$folder/learner_job"; fi

# Sends an array of actors or evaluators.
send_array() {  # ROLE NUMBER
  send sbatch --parsable --job-name="$name-$1-of-$learner" --output="$folder/$1-%a.log" \
    --array="0-$(($2 - 1))" --dependency="after:$learner" "${actor_options[@]}" \
    "$root/slurm/job.sh" "${settings[@]}" "SEED_RL_ROLE=$1" "LEARNER=$learner" -- "${arguments[@]}"
}
others=()
for kind in "actor $actors" "evaluator $evaluators"; do
  read -r role number <<< "$kind"
  ((number > 0)) || continue
  if ! id="$(send_array "$role" "$number")"; then
    scancel "$learner" "${others[@]}"
    exit 1
  fi
  others+=("$id")
done
[[ -z "$dry_run" ]] || exit 0
cat << END
Submitted: learner ${learner}, others ${others[*]} (squeue --me). Logs: $folder/*.log
To stop: scancel $learner ${others[*]}   The same command then resumes from the last checkpoint.
END
