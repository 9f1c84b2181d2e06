#!/usr/bin/env bash
# Pushes the images that docker/build.sh has built to a registry.
#
#   SEED_RL_REGISTRY=HOST/PATH docker/push.sh [--gpu] FAMILY ...
#
#   export SEED_RL_REGISTRY=europe-docker.pkg.dev/PROJECT/REPOSITORY
#   docker/build.sh atari && docker/push.sh atari
#
# Log in first, as the registry's pages say (docker login HOST, gcloud auth configure-docker HOST).
# --gpu: the learner's image with CUDA's libraries.
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

variant=""
chosen=()
for argument in "$@"; do
  case "$argument" in
    --gpu) variant=-gpu ;;
    -h | --help)
      usage
      exit
      ;;
    -*) fail "unknown option $argument; see $0 --help" ;;
    *) chosen+=("$argument") ;;
  esac
done
((${#chosen[@]})) || fail "which environments? Choose from: ${families[*]} base tensorboard"
[[ -n "${SEED_RL_REGISTRY:-}" ]] || fail "where to? Set SEED_RL_REGISTRY, for example to
europe-docker.pkg.dev/PROJECT/REPOSITORY, and build the images under that name."
check_engine

images=()
for family in "${chosen[@]}"; do
  if [[ "$family" == tensorboard ]]; then
    images+=("$(tensorboard_image)")
  else
    images+=("$(learner_image "$family" "$variant")" "$(actor_image "$family")")
  fi
done
for image in "${images[@]}"; do
  docker image inspect "$image" > /dev/null 2>&1 ||
    fail "there is no image $image; build it first: docker/build.sh ${variant:+--gpu }${chosen[*]}"
done
for image in "${images[@]}"; do
  say "pushing $image"
  docker push "$image" || fail "$image could not be pushed. If you are not logged in to
${SEED_RL_REGISTRY%%/*}:  docker login ${SEED_RL_REGISTRY%%/*}
If its path does not exist there, create the repository first."
done
