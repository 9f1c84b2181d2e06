#!/usr/bin/env bash
# Trains on a Kubernetes cluster: checks the arguments, renders the manifests and applies them.
#
#   k8s/submit.sh [--OPTION=...] GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#
#   export SEED_RL_REGISTRY=europe-docker.pkg.dev/PROJECT/REPOSITORY     # As for docker/push.sh.
#   k8s/submit.sh --gpus=1 atari vtrace 32 4 --game=Pong
#
# The arguments are those of ./run_local.sh; other flags, and those in a --flagfile, go to the learner
# and the actors. The program checks them first, if this machine has SEED RL's packages: in PYTHON,
# or else in the checkout's .venv. Options:
#
#   --run=NAME           directory of the run on the volume (default: GAME-AGENT); the same name
#                        resumes
#   --namespace=N        must exist, and holds one run (default: seed-rl)
#   --with=A,B,...       gpu, pools, spot, tensorboard (each explained in k8s/components)
#   --gpus=N             of the learner, and a node with them; --with=gpu is --gpus=1
#   --tpu=TYPE/TOPOLOGY  of the learner, on GKE, such as tpu-v5-lite-podslice/2x4; with an image of
#                        yours (docs/deployment/kubernetes.md)
#   --cpus=4 --memory=8Gi               of the learner
#   --actor_cpus=1 --actor_memory=1Gi   of each actor
#   --selector=KEY=VALUE                label of the learner's node; may be repeated
#   --learner_image=I --actor_image=I --tensorboard_image=I   instead of those that docker/push.sh
#                        has pushed
#   --engine=jobset      or plain, for clusters without JobSet
#   --queue=Q            waits in this LocalQueue of Kueue
#   --storage=50Gi --storage_class=C    of the volume, when it is made
#   --insecure           neither token nor TLS
#   --learners=N         N learners, each in a pod, train one network together; needs --insecure,
#                        JobSet, and a volume that several nodes can mount
#   --dry_run            prints the manifests and does nothing
#
# For more, copy k8s/overlays/jobset and change it (docs/deployment/kubernetes.md).
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../docker/lib.sh"
# shellcheck source=k8s/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run="" namespace=seed-rl engine=jobset queue="" with="" learner_image="" actor_image=""
storage="" storage_class="" insecure=false dry_run=false learners=1
positional=() flags=()
gpus="" tpu="" cpus="" memory="" actor_cpus="" actor_memory="" selectors=() tensorboard_image=""

for argument in "$@"; do
  value="${argument#*=}"
  case "$argument" in
    -h | --help)
      usage
      exit
      ;;
    --run=* | --namespace=* | --with=* | --gpus=* | --cpus=* | --memory=* | --actor_cpus=* | \
      --actor_memory=* | --learner_image=* | --actor_image=* | --tensorboard_image=* | --queue=* | \
      --storage=* | --storage_class=* | --learners=*)
      name="${argument%%=*}"
      printf -v "${name#--}" %s "$value" ;;
    --tpu=*:*) flags+=("$argument") ;; # The program's: an address.
    --tpu=*/*) tpu="$value" ;;
    --selector=*) selectors+=("$value") ;;
    --engine=jobset | --engine=plain) engine="$value" ;; # Others are football's.
    --insecure) insecure=true ;;
    --dry_run) dry_run=true ;;
    --logdir=* | --job-dir=*) fail "$argument: the run is on a volume; name it with --run=NAME." ;;
    --tensorboard_port=*) fail "$argument is for ./run_local.sh alone: leave it out here." ;;
    --*) flags+=("$argument") ;;
    *) positional+=("$argument") ;;
  esac
done

check() { # NAME PATTERN EXAMPLE
  local value="${!1}"
  [[ -z "$value" || "$value" =~ ^($2)$ ]] || fail "--$1=$value: write it like --$1=$3."
}
quantity='(0|[1-9][0-9]*)(\.[0-9]+)?'
check gpus '[1-9][0-9]*' 2
check tpu '[a-z0-9-]+/[1-9](x[1-9]){1,2}' tpu-v5-lite-podslice/2x4
for name in cpus actor_cpus; do check "$name" "${quantity}m?" 16; done
for name in memory actor_memory; do check "$name" "$quantity([kMGT]|[KMGT]i)?" 32Gi; done
for selector in "${selectors[@]}"; do
  [[ "$selector" =~ ^[A-Za-z0-9._/-]+=[A-Za-z0-9._-]*$ ]] ||
    fail "--selector=$selector: write it like" \
      "--selector=cloud.google.com/gke-accelerator=nvidia-l4."
done
[[ -z "$gpus" || ",$with," == *,gpu,* ]] || with="${with:+$with,}gpu"
if [[ -n "$tpu" ]]; then
  topology="${tpu#*/}"
  chips=$((${topology//x/*}))
  ((chips <= (${#topology} > 3 ? 4 : 8))) ||
    fail "--tpu=$tpu: that is several machines, and the learner is on one: at most 2x4 or 2x2x1."
  [[ ",$with," != *,gpu,* ]] || fail "--tpu=$tpu: the learner takes GPUs or a TPU, not both."
  [[ -n "$learner_image" ]] ||
    fail "--tpu=$tpu: docker/build.sh makes no image with TensorFlow for TPUs (tensorflow-tpu);" \
      "name one of yours: --learner_image=IMAGE."
  flags+=(--tpu=local)
  selectors+=("cloud.google.com/gke-tpu-accelerator=${tpu%/*}"
    "cloud.google.com/gke-tpu-topology=$topology")
fi

# Any Python does; one without SEED RL's packages warns that it cannot check the flags.
python="${PYTHON:-$root/.venv/bin/python}"
[[ -n "${PYTHON:-}" || -x "$python" ]] || python=python3
command -v "$python" > /dev/null || fail "$python is missing: sudo apt-get install python3"
modules="$root${PYTHONPATH:+:$PYTHONPATH}"
# The images need not have the flag files.
answer="$(PYTHONPATH="$modules" "$python" -m seed_rl.common.system.flag_files "${flags[@]}")" || exit
mapfile -t flags < <(printf '%s' "${answer:+$answer$'\n'}")
several=() # What the program is told of them.
if [[ "$learners" != 1 ]]; then
  [[ "$engine" == jobset ]] || fail "--learners=$learners needs --engine=jobset."
  several=("--learners=$learners")
  ! $insecure || several+=(--insecure)
fi
answer="$(PYTHONPATH="$modules" SEED_RL_EVALUATORS=0 \
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
# The learner's has TensorBoard, too, but is large.
[[ -n "$tensorboard_image" || -z "${SEED_RL_REGISTRY:-}" ]] || tensorboard_image="$(tensorboard_image)"
tensorboard_image="${tensorboard_image:-$learner_image}"
[[ -z "$queue" || "$engine" == jobset ]] || fail "--queue needs --engine=jobset."
run="${run:-${positional[0]}-${positional[1]}}"
[[ "$run" =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail "--run=$run: use letters, digits, . _ and -"

patch() { # KIND[/NAME] OPERATION PATH VALUE
  local value="\"$4\""
  [[ "$3" != */failureThreshold ]] || value="$4" # The only one that must be a number.
  printf '  - target: {kind: %s}\n    patch: |\n' "${1/\//, name: }"
  printf '      - {op: %s, path: %s, value: %s}\n' "$2" "$3" "$value"
}

# The options for CPUs, memory, accelerators, nodes and images, as patches of a component: before a
# JobSet is made of the Jobs, and after the components whose values they replace.
pod=/spec/template/spec
size() { # JOB CPUS MEMORY
  local resources="$pod/containers/0/resources"
  [[ -z "$2" ]] || patch "Job/$1" replace "$resources/requests/cpu" "$2"
  [[ -z "$3" ]] || patch "Job/$1" replace "$resources/requests/memory" "$3"
  [[ -z "$3" ]] || patch "Job/$1" replace "$resources/limits/memory" "$3"
}
gib() { # MEMORY
  local number="${1%%[.kKMGT]*}"
  case "$1" in
    *T*) echo $((1024 * (number + 1))) ;;
    *G*) echo $((number + 1)) ;;
    *M*) echo $((number / 1000 + 1)) ;;
    *k* | *K*) echo $((number / 1000000 + 1)) ;;
    *) echo $((number / 1000000000 + 1)) ;;
  esac
}
limit() { # RESOURCE NUMBER
  patch Job/learner add "$pod/containers/0/resources/limits/${1/\//\~1}" "$2"
}
# Nodes ask the registry for the newest image of a tag; kind and minikube have images of none.
pull() { # KIND/NAME CONTAINER IMAGE
  [[ "$3" != */* || "$3" == *@* ]] || patch "$1" add "$pod/$2/imagePullPolicy" Always
}
resources="$(
  pull Job/learner containers/0 "$learner_image"
  $insecure || pull Job/learner initContainers/0 "$learner_image"
  pull Job/actors containers/0 "$actor_image"
  [[ ",$with," != *,tensorboard,* ]] ||
    pull Deployment/tensorboard containers/0 "$tensorboard_image"
  size learner "$cpus" "$memory"
  size actors "$actor_cpus" "$actor_memory"
  [[ -z "$memory" ]] ||
    patch Job/learner replace "$pod/containers/0/startupProbe/failureThreshold" \
      "$((90 + 2 * $(gib "$memory")))"
  [[ -z "$gpus" ]] || limit nvidia.com/gpu "$gpus"
  [[ -z "$tpu" ]] || limit google.com/tpu "$chips"
  for selector in "${selectors[@]}"; do
    key="${selector%%=*}"
    patch Job/learner add "$pod/nodeSelector/${key//\//\~1}" "${selector#*=}"
  done
)"

components=()
if $insecure; then components+=(insecure); else components+=(secrets); fi
for component in ${with//,/ }; do
  case "$component" in
    gpu | pools | spot | tensorboard) components+=("$component") ;;
    *) fail "--with=$component: choose from gpu, pools, spot, tensorboard." ;;
  esac
done
[[ -z "$resources" ]] || components+=(resources)
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
mkdir "$overlay/resources"
printf 'apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n%s\n' \
  "$resources" > "$overlay/resources/kustomization.yaml"
{
  printf 'namespace: "%s"\nresources:\n  - %s/base\ncomponents:\n' "$namespace" "$base"
  for component in "${components[@]}"; do
    [[ "$component" == resources ]] || component="$base/components/$component"
    echo "  - $component"
  done
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
  image seed-rl-tensorboard "$tensorboard_image"
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
# Applied over a run, the ConfigMaps would change what its next pods train.
selector=--selector=app.kubernetes.io/name=seed-rl
for kind in jobset job; do # (A cluster without JobSet knows only the second.)
  found="$("${in_namespace[@]}" get "$kind" "$selector" --output=name 2> /dev/null)" || found=""
  [[ -z "$found" ]] ||
    fail "namespace $namespace holds a run already: ${found//$'\n'/, } (--run=$("${in_namespace[@]}" get \
      configmap run --output='jsonpath={.data.RUN}')). End it, running or not, with" \
      "${in_namespace[*]} delete $kind $selector" \
      "(it saves; the same command then resumes it), or choose another --namespace."
done
apply=("${in_namespace[@]}" apply --filename="$overlay/manifests.yaml")
# First the cluster checks all objects: otherwise those beside a refused one would start.
"${apply[@]}" --dry-run=server > /dev/null ||
  fail "not applied; kubectl says why. No JobSet in this cluster: install it (see" \
    "docs/deployment/kubernetes.md), or use --engine=plain. No namespace: kubectl create" \
    "namespace $namespace. A field of the volume is immutable: give the same --storage," \
    "--storage_class and --with=tensorboard or --learners as the first time."
"${apply[@]}"
cat << END
Watch it:   ${in_namespace[*]} get pods --watch
Its log:    ${in_namespace[*]} logs --follow --selector=app.kubernetes.io/component=learner
END
