# shellcheck shell=bash
# What the scripts here share; they source it.
#
# SEED_RL_REGISTRY   prefix of the images, such as europe-docker.pkg.dev/project/repository
# SEED_RL_TAG        tag of the images (default: the version of SEED RL)
# DOCKER_BUILD_ARGS  further arguments of docker build, separated by spaces
# DOCKER_RUN_ARGS    further arguments of docker run
# shellcheck disable=SC2034  # They use the variables.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
families=(atari dmlab football mujoco)
tag="${SEED_RL_TAG:-$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$root/seed_rl/__init__.py")}"
prefix="${SEED_RL_REGISTRY:+${SEED_RL_REGISTRY%/}/}seed-rl-"
read -ra build_args <<< "${DOCKER_BUILD_ARGS:-}"
read -ra run_args <<< "${DOCKER_RUN_ARGS:-}"
# Cache mounts need BuildKit, which older engines do not use by default.
export DOCKER_BUILDKIT=1

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

[[ "${SEED_RL_REGISTRY:-}" != *[[:upper:]]* ]] ||
  fail "SEED_RL_REGISTRY=$SEED_RL_REGISTRY: names of images have no capitals; put your own in."

# The comment at the top of a script is its help.
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }

check_engine() {
  command -v docker > /dev/null ||
    fail "Docker is not installed: https://docs.docker.com/engine/install/"
  local answer
  answer="$(docker version --format '{{.Server.Version}}' 2>&1)" || fail "Docker's engine does not answer: ${answer##*$'\n'}
Start it (sudo systemctl start docker). If it runs, you may not use it yet: add yourself to its
group (sudo usermod --append --groups docker \"\$USER\") and log in again."
}

# The images of a family: everything, and an actor alone. The variant "-gpu" has CUDA's libraries.
learner_image() { echo "$prefix$1:$tag${2:-}"; } # FAMILY [VARIANT]
actor_image() { echo "${prefix}$1-actor:$tag"; } # FAMILY
tensorboard_image() { echo "${prefix}tensorboard:$tag"; }

# The family of a game or program: those that need no packages of their own share the base.
family_of() { # GAME
  case "$1" in
    gym | external | *.py) echo base ;;
    *)
      [[ " ${families[*]} " == *" $1 "* ]] ||
        fail "unknown game '$1'; choose from: ${families[*]} gym external, or the path of a program of yours"
      echo "$1"
      ;;
  esac
}

# Identifies what images are made from.
source_fingerprint() {
  (
    cd "$root"
    find docker/Dockerfile.* docker/requirements pyproject.toml setup.py MANIFEST.in seed_rl \
      \( -name __pycache__ -o -name _native \) -prune -o -type f -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -c1-16
}
