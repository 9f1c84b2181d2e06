#!/usr/bin/env bash
# Builds the images of environment families: one with all that a run needs, and one for actors.
#
#   docker/build.sh [--gpu] [--target=learner|actor] [FAMILY ...] [-- ARGUMENT ...]
#
#   docker/build.sh atari                     seed-rl-atari:VERSION, seed-rl-atari-actor:VERSION
#   docker/build.sh --gpu atari               seed-rl-atari:VERSION-gpu, with CUDA's libraries
#   docker/build.sh --target=actor football   only the actor's
#   docker/build.sh tensorboard               seed-rl-tensorboard:VERSION, for k8s/submit.sh
#   docker/build.sh dmlab -- --build-arg DMLAB_WHEEL=wheels/deepmind_lab-1.0-py3-none-any.whl
#
# FAMILY: atari, dmlab, football, mujoco, or base (the classic games of gym, programs of yours);
# tensorboard is TensorBoard alone.
# ARGUMENTs are those of docker build, for all images; so is what DOCKER_BUILD_ARGS has. The tag is
# SEED_RL_TAG, if set. SEED_RL_REGISTRY comes before the names, for docker/push.sh.
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

gpu=false tensorboard=false
targets=(learner actor)
chosen=()
while (($#)); do
  case "$1" in
    --gpu) gpu=true ;;
    --target=learner | --target=actor) targets=("${1#--target=}") ;;
    -h | --help)
      usage
      exit
      ;;
    --)
      shift
      build_args+=("$@")
      break
      ;;
    -*) fail "unknown option $1; see $0 --help" ;;
    tensorboard) tensorboard=true ;;
    *) [[ " ${families[*]} base " == *" $1 "* ]] ||
      fail "unknown family '$1'; choose from: ${families[*]} base"
      chosen+=("$1") ;;
  esac
  shift
done
((${#chosen[@]})) || $tensorboard ||
  fail "which environments? Choose from: ${families[*]} base (or tensorboard)"
check_engine

tensorflow=cpu
variant=""
if "$gpu"; then
  tensorflow=gpu
  variant=-gpu
fi
labels=(
  --label "org.opencontainers.image.version=$tag"
  --label "org.opencontainers.image.created=$(date --utc +%Y-%m-%dT%H:%M:%SZ)"
)
if revision="$(git -C "$root" rev-parse HEAD 2> /dev/null)"; then
  labels+=(--label "org.opencontainers.image.revision=$revision")
fi

build() { # FILE TARGET IMAGE [ARGUMENT ...]
  local file="$1" target="$2" image="$3"
  shift 3
  say "building $image"
  docker build --file "$root/docker/Dockerfile.$file" --target "$target" --tag "$image" \
    "${labels[@]}" "$@" "${build_args[@]}" "$root"
}

labels+=(--label "seed-rl.source=$(source_fingerprint)")
if $tensorboard; then build base tensorboard "$(tensorboard_image)" --build-arg TENSORFLOW=cpu; fi
((${#chosen[@]})) || exit 0
for target in "${targets[@]}"; do
  case "$target" in
    learner) build base learner "$(learner_image base "$variant")" --build-arg "TENSORFLOW=$tensorflow" ;;
    actor) build base actor "$(actor_image base)" --build-arg "TENSORFLOW=$tensorflow" ;;
  esac
done
for family in "${chosen[@]}"; do
  [[ "$family" != base ]] || continue
  file=family
  [[ "$family" != dmlab ]] || file=dmlab
  for target in "${targets[@]}"; do
    requirements="$family"
    case "$target" in
      learner) image="$(learner_image "$family" "$variant")" base="$(learner_image base "$variant")" ;;
      actor)
        image="$(actor_image "$family")" base="$(actor_image base)"
        # Without OpenCV, which only games that are rendered or wrapped need.
        [[ "$family" != atari ]] || requirements=atari-actor
        ;;
    esac
    build "$file" family "$image" --build-arg "BASE=$base" --build-arg "REQUIREMENTS=$requirements"
  done
done
