#!/usr/bin/env bash
# Trains on a Kubernetes cluster: checks the arguments, renders the manifests and applies them.
#
#   k8s/submit.sh [--OPTION=...] GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#
#   export SEED_RL_REGISTRY=europe-docker.pkg.dev/PROJECT/REPOSITORY     # As for docker/push.sh.
#   k8s/submit.sh --with=gpu atari vtrace 32 4 --game=Pong
#
# The arguments are those of ./run_local.sh; other flags, and those in a --flagfile, go to the learner
# and the actors. The program checks them first, if this machine has SEED RL's packages: in PYTHON,
# or else in the checkout's .venv. Options:
#
#   --run=NAME           directory of the run on the volume (default: GAME-AGENT); the same name
#                        resumes
#   --namespace=N        must exist, and holds one run (default: seed-rl)
#   --with=A,B,...       gpu, pools, spot, tensorboard (each explained in k8s/components)
#   --learner_image=I --actor_image=I   instead of those that docker/push.sh has pushed
#   --engine=jobset      or plain, for clusters without JobSet
#   --queue=Q            waits in this LocalQueue of Kueue
#   --storage=50Gi --storage_class=C    of the volume, when it is made
#   --insecure           neither token nor TLS
#   --learners=N         N learners, each in a pod, train one network together; needs --insecure,
#                        JobSet, and a volume that several nodes can mount
#   --dry_run            prints the manifests and does nothing
#
# For more (other resources, node selectors), write an overlay like those in k8s/overlays.
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../docker/lib.sh"
# shellcheck source=k8s/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run="" namespace=seed-rl engine=jobset queue="" with="" learner_image="" actor_image=""
storage="" storage_class="" insecure=false dry_run=false learners=1
positional=() flags=()

# A flag, or those of a flag file: the images need not have the file.
add_flag() { # FLAG
  local path="${1#--flagfile=}" line outer="${files:-:}" files
  if [[ "$1" != --flagfile=* ]]; then
    flags+=("$1")
    return
  fi
  [[ -e "$path" ]] || path="$root/$path"
  [[ -r "$path" && ! -d "$path" ]] || fail "$1: there is no such file that can be read."
  path="$(realpath "$path")"
  [[ "$outer" != *":$path:"* ]] ||
    fail "$1: the file includes itself, perhaps through another: remove that line."
  files="$outer$path:" # Seen by the calls below, for the files that are being read.
  while read -r line || [[ -n "$line" ]]; do
    [[ "$line" != -* ]] || add_flag "$line"
  done < "$path"
}

for argument in "$@"; do
  value="${argument#*=}"
  case "$argument" in
    -h | --help)
      usage
      exit
      ;;
    --learner_image=*) learner_image="$value" ;;
    --actor_image=*) actor_image="$value" ;;
    --run=*) run="$value" ;;
    --namespace=*) namespace="$value" ;;
    --with=*) with="$value" ;;
    --engine=*) engine="$value" ;;
    --queue=*) queue="$value" ;;
    --storage=*) storage="$value" ;;
    --storage_class=*) storage_class="$value" ;;
    --insecure) insecure=true ;;
    --learners=*) learners="$value" ;;
    --dry_run) dry_run=true ;;
    --logdir=* | --job-dir=*) fail "$argument: the run is on a volume; name it with --run=NAME." ;;
    --*) add_flag "$argument" ;;
    *) positional+=("$argument") ;;
  esac
done

# Any Python does; one without SEED RL's packages warns that it cannot check the flags.
python="${PYTHON:-$root/.venv/bin/python}"
[[ -n "${PYTHON:-}" || -x "$python" ]] || python=python3
command -v "$python" > /dev/null || fail "$python is missing: sudo apt-get install python3"
several=() # What the program is told of them.
if [[ "$learners" != 1 ]]; then
  [[ "$engine" == jobset ]] || fail "--learners=$learners needs --engine=jobset."
  several=("--learners=$learners")
  ! $insecure || several+=(--insecure)
fi
answer="$(PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" SEED_RL_EVALUATORS=0 \
  "$python" -m seed_rl.cluster.flag_check "${positional[@]}" "${flags[@]}" "${several[@]}" 2>&1)" ||
  fail "$(sed -n 's/^error: //p' <<< "$answer" | grep . || echo "$answer")"
[[ -z "$answer" ]] || printf '%s\n' "$answer" >&2
[[ "${positional[0]}" != *.py ]] ||
  fail "${positional[0]}: a program of your own needs an image and an overlay of its own, see" \
    "docs/deployment/kubernetes.md."
[[ "$learners" == 1 ]] || $insecure || # Where the program could not be asked.
  fail "--learners=$learners exchange gradients without token or encryption, which --insecure allows."
command -v kubectl > /dev/null || fail "kubectl is missing: https://kubernetes.io/docs/tasks/tools"
if [[ -z "$learner_image" || -z "$actor_image" ]]; then
  [[ -n "${SEED_RL_REGISTRY:-}" ]] ||
    fail "which images? Build and push them (docker/build.sh, docker/push.sh) with" \
      "SEED_RL_REGISTRY=HOST/PATH, and set that here, too; or use --learner_image and" \
      "--actor_image."
  family="$(family_of "${positional[0]}")"
  variant=""
  [[ ",$with," != *,gpu,* ]] || variant=-gpu
  learner_image="${learner_image:-$(learner_image "$family" "$variant")}"
  actor_image="${actor_image:-$(actor_image "$family")}"
fi
[[ "$engine" == jobset || "$engine" == plain ]] || fail "--engine is jobset or plain, not $engine."
[[ -z "$queue" || "$engine" == jobset ]] || fail "--queue needs --engine=jobset."
run="${run:-${positional[0]}-${positional[1]}}"
[[ "$run" =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail "--run=$run: use letters, digits, . _ and -"

components=()
if $insecure; then components+=(insecure); else components+=(secrets); fi
for component in ${with//,/ }; do
  case "$component" in
    gpu | pools | spot | tensorboard) components+=("$component") ;;
    *) fail "--with=$component: choose from gpu, pools, spot, tensorboard." ;;
  esac
done
components+=(actors)
[[ "$learners" == 1 ]] || components+=(learners)
[[ "$engine" == plain ]] || components+=(jobset)
[[ -z "$queue" ]] || components+=(kueue)

image() { # NAME REFERENCE
  local tail="${2##*/}"
  echo "  - name: $1"
  if [[ "$2" == *@* ]]; then
    printf '    newName: "%s"\n    digest: "%s"\n' "${2%@*}" "${2#*@}"
  elif [[ "$tail" == *:* ]]; then
    printf '    newName: "%s"\n    newTag: "%s"\n' "${2%:*}" "${2##*:}"
  else
    printf '    newName: "%s"\n    newTag: latest\n' "$2"
  fi
}

patch() { # KIND OPERATION PATH VALUE
  printf '  - target: {kind: %s}\n    patch: |\n' "$1"
  printf '      - {op: %s, path: %s, value: "%s"}\n' "$2" "$3" "$4"
}

overlay="$(mktemp -d)"
trap 'rm -rf "$overlay"' EXIT
# Kustomize wants relative paths.
base="$(realpath --relative-to="$(realpath "$overlay")" "$root/k8s")"
{
  printf 'RUN=%s\nGAME=%s\nAGENT=%s\n' "$run" "${positional[0]}" "${positional[1]}"
  printf 'ACTORS=%s\nENVS_PER_ACTOR=%s\n' "${positional[2]}" "${positional[3]:-1}"
  [[ "$learners" == 1 ]] || echo "LEARNERS=$learners"
} > "$overlay/run.env"
printf '%s\n' "${flags[@]}" > "$overlay/flags"
{
  printf 'namespace: "%s"\nresources:\n  - %s/base\ncomponents:\n' "$namespace" "$base"
  for component in "${components[@]}"; do echo "  - $base/components/$component"; done
  cat << 'END'
configMapGenerator:
  - name: run
    envs: [run.env]
  - name: flags
    files: [flags]
generatorOptions:
  disableNameSuffixHash: true
END
  echo "images:"
  image seed-rl-learner "$learner_image"
  image seed-rl-actor "$actor_image"
  echo "patches:"
  [[ -z "$storage" ]] ||
    patch PersistentVolumeClaim replace /spec/resources/requests/storage "$storage"
  [[ -z "$storage_class" ]] ||
    patch PersistentVolumeClaim add /spec/storageClassName "$storage_class"
  [[ -z "$queue" ]] ||
    patch JobSet replace /metadata/labels/kueue.x-k8s.io~1queue-name "$queue"
} > "$overlay/kustomization.yaml"
kubectl kustomize "$overlay" > "$overlay/manifests.yaml"
if $dry_run; then
  cat "$overlay/manifests.yaml"
  exit
fi

in_namespace=(kubectl --namespace="$namespace")
check_cluster
if ! $insecure; then
  "${in_namespace[@]}" get secret learner-secrets actor-secrets > /dev/null ||
    fail "the run's secrets cannot be found in namespace $namespace. k8s/create_secrets.sh DIR" \
      "$namespace makes them from the files of scripts/make_secrets.sh. (The cluster is that of" \
      "context $(context).)"
fi
kind=job
[[ "$engine" == plain ]] || kind=jobset
if ! "${in_namespace[@]}" apply --filename="$overlay/manifests.yaml"; then
  fail "not applied; kubectl says why. No JobSet in this cluster: install it (see" \
    "docs/deployment/kubernetes.md), or use --engine=plain. No namespace: kubectl create" \
    "namespace $namespace. A field is immutable: there is a run already; end it with" \
    "${in_namespace[*]} delete $kind --selector=app.kubernetes.io/name=seed-rl" \
    "(its checkpoints stay), and try again."
fi
cat << END
Watch it:   ${in_namespace[*]} get pods --watch
Its log:    ${in_namespace[*]} logs --follow --selector=app.kubernetes.io/component=learner
END
