#!/usr/bin/env bash
# Trains in a container: ./run_local.sh --docker runs this, with the same arguments and effects.
#
#   docker/run.sh GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#   docker/run.sh PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#
# Builds the image if there is none of this source. Runs as you, on the host's network, with the
# GPUs of this machine. Of your files, the container sees the logdir, or runs/, and those that flags
# name; with --expose, the secrets; with a program of yours, the working directory.
#
# With SEED_RL_ROLE set, runs that one process of a run on several machines instead, as `python -m
# seed_rl.cluster` does (docs/deployment/docker.md); the settings SEED_RL_* are passed on, and
# actors use the small image. More settings:
#
#   SEED_RL_IMAGE     the image to run, such as one with further packages; is not built
#   SEED_RL_GPU       true or false, instead of looking for one
#   DOCKER_RUN_ARGS   further arguments of docker run, such as "--cpuset-cpus=0-7"
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case " $* " in
  *" --help "* | *" -h "*)
    usage
    exit
    ;;
esac
(($#)) || fail "what do you want to train? See $0 --help"
role="${SEED_RL_ROLE:-}"
family="$(family_of "$1")"
check_engine

# Mounts, at the same paths as on this machine, so that messages name them correctly.

mounts=()
mounted=()
show() { # PATH [ro]
  local path
  path="$(realpath -ms "$1")"
  [[ "$path" != / ]] || fail "the container cannot have this machine's / as its own: $1"
  [[ " ${mounted[*]} " != *" $path "* ]] || return 0
  mounted+=("$path")
  mounts+=(--volume "$path:$path${2:+:$2}")
}
# A folder that does not exist would be made by the engine, and belong to root.
show_folder() {
  mkdir -p "$1" || fail "cannot make the folder $1"
  show "$1"
}

logdir="" secrets=secrets
fresh=false exposed=false
set -- "${@/=\~\//=$HOME/}" # The container has another home.
for argument in "$@"; do
  case "$argument" in
    --logdir=*://* | --job-dir=*://*) logdir=remote ;;
    --logdir=* | --job-dir=*) logdir="${argument#*=}" ;;
    --restart=fresh) fresh=true ;;
    --expose | --expose=*) exposed=true ;;
    --secrets=*) secrets="${argument#*=}" ;;
    --*=*) [[ ! -e "${argument#*=}" ]] || show "${argument#*=}" ;;
  esac
done
case "$logdir" in
  remote) ;;
  "") show_folder runs ;;
  *)
    # The old run is renamed, which is not possible for a volume.
    if "$fresh"; then logdir="$(dirname "$(realpath -ms "$logdir")")"; fi
    show_folder "$logdir"
    ;;
esac
if "$exposed" && [[ -d "$secrets" ]]; then show "$secrets" ro; fi
if [[ "$1" == *.py ]]; then
  show "$PWD"
  # Programs import the image's SEED RL, not a checkout that they are in.
  if [[ -d seed_rl ]]; then mounts+=(--tmpfs "$PWD/seed_rl"); fi
fi
if [[ -n "${SEED_RL_SECRETS:-}" ]]; then
  [[ -d "$SEED_RL_SECRETS" ]] || # The engine would make it, empty.
    fail "SEED_RL_SECRETS=$SEED_RL_SECRETS is not a folder; scripts/make_secrets.sh DIR HOST makes one."
  show "$SEED_RL_SECRETS" ro
fi
if [[ -n "${SEED_RL_INDEX_DIR:-}" ]]; then show_folder "$SEED_RL_INDEX_DIR"; fi
if [[ -n "${SEED_RL_PROXY:-}" && "$role" == @(learner|proxy) ]]; then
  show_folder "$(dirname "$SEED_RL_PROXY")"
fi
if [[ -n "${SEED_RL_ADDRESS_FILE:-}" ]]; then show_folder "$(dirname "$SEED_RL_ADDRESS_FILE")"; fi

# The image.

has_gpu() {
  case "${SEED_RL_GPU:-}" in
    true) return 0 ;;
    false) return 1 ;;
  esac
  case "${CUDA_VISIBLE_DEVICES-all}" in
    "" | -1) return 1 ;;
  esac
  command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1
}

build_options=()
if [[ "$role" == actor || "$role" == evaluator ]]; then
  image="$(actor_image "$family")"
  build_options=(--target=actor)
elif has_gpu && [[ "$role" != tensorboard ]]; then
  [[ "$(docker info --format '{{.Runtimes}}' 2> /dev/null)" == *nvidia* ]] ||
    command -v nvidia-container-runtime-hook nvidia-ctk > /dev/null ||
    fail "this machine has a GPU, but Docker cannot use it yet. Install NVIDIA's container toolkit:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
To train without the GPU:  SEED_RL_GPU=false $0 ..."
  image="$(learner_image "$family" -gpu)"
  build_options=(--gpu --target=learner)
  run_args+=(--gpus all)
  [[ -n "${CUDA_VISIBLE_DEVICES-all}" && "${CUDA_VISIBLE_DEVICES-}" != -1 ]] || # SEED_RL_GPU=true
    unset CUDA_VISIBLE_DEVICES
else
  image="$(learner_image "$family")"
  build_options=(--target=learner)
fi
if [[ -n "${SEED_RL_IMAGE:-}" ]]; then
  image="$SEED_RL_IMAGE"
else
  made_from="$(docker image inspect --format '{{index .Config.Labels "seed-rl.source"}}' "$image" \
    2> /dev/null || true)"
  if [[ "$made_from" != "$(source_fingerprint)" ]]; then
    say "building $image (some minutes the first time)"
    "$root/docker/build.sh" "${build_options[@]}" "$family" >&2
  fi
fi

# Who it is. In a rootless engine, root is the caller.

name="seed-rl-$$-$RANDOM"
arguments=(--rm --name "$name" --network host --workdir "$PWD" --stop-timeout 330)
if [[ "$(docker info --format '{{.SecurityOptions}}')" == *rootless* ]]; then
  arguments+=(--user 0:0)
else
  arguments+=(--user "$(id -u):$(id -g)")
fi
if [[ -t 0 && -t 1 ]]; then arguments+=(--interactive --tty); fi
while IFS= read -r variable; do
  arguments+=(--env "$variable")
done < <(compgen -e | grep -E \
  '^(SEED_RL_|WANDB_|(CUDA_VISIBLE_DEVICES|JOB_COMPLETION_INDEX|MUJOCO_GL|SLURM_ARRAY_TASK_ID|TERM)$)')
arguments+=("${mounts[@]}" "${run_args[@]}")

if [[ -n "$role" ]]; then
  exec docker run "${arguments[@]}" "$image" "$@"
fi
# The process ids in LOGDIR/supervisor.pid are this machine's, for ./stop_local.sh.
if [[ "$(docker info --format '{{.SecurityOptions}}')" != *rootless* ]]; then
  arguments+=(--pid host)
fi
# When the terminal is closed, or the client killed, the run saves and ends, as without a container.
if [[ " ${run_args[*]} " != *" -d "* && " ${run_args[*]} " != *" --detach "* ]]; then
  (
    trap '' HUP INT TERM
    while kill -0 "$$" 2> /dev/null; do sleep 1; done
    docker kill --signal=TERM "$name"
  ) > /dev/null 2>&1 < /dev/null &
fi
exec docker run --no-healthcheck --entrypoint tini "${arguments[@]}" "$image" \
  -s -- python -m seed_rl.launch.local "$@"
