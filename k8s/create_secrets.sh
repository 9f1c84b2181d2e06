#!/usr/bin/env bash
# Stores the files of scripts/make_secrets.sh in the cluster. The learner's pod gets the token and the
# certificates of the proxy and the authority; the actors get the token, the authority's certificate
# and their own. Run it again after a renewal to replace them.
#
#   scripts/make_secrets.sh secrets learner      # As actors call it: the name of the Service.
#   k8s/create_secrets.sh secrets [NAMESPACE] [--dry_run]
#
# NAMESPACE: default seed-rl. --dry_run prints the Secrets (with what is secret) and does nothing.
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../docker/lib.sh"
# shellcheck source=k8s/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

positional=() dry_run=false
for argument in "$@"; do
  case "$argument" in
    -h | --help)
      usage
      exit
      ;;
    --dry_run) dry_run=true ;;
    -*) fail "unknown option $argument; see $0 --help" ;;
    *) positional+=("$argument") ;;
  esac
done
((${#positional[@]} == 1 || ${#positional[@]} == 2)) || fail "usage: $0 DIR [NAMESPACE] [--dry_run]"
directory="${positional[0]%/}"
namespace="${positional[1]:-seed-rl}"
command -v kubectl > /dev/null || fail "kubectl is missing: https://kubernetes.io/docs/tasks/tools"
for file in token proxy.pem ca.pem actor-cert.pem actor-key.pem; do
  [[ -r "$directory/$file" ]] ||
    fail "cannot read $directory/$file: scripts/make_secrets.sh $directory learner makes it."
done

secret() { # NAME FILE ...
  local name="$1" file files=()
  shift
  for file in "$@"; do files+=("--from-file=$directory/$file"); done
  echo ---
  kubectl create secret generic "$name" --namespace="$namespace" "${files[@]}" \
    --dry-run=client --output=yaml
}

secrets="$(
  secret learner-secrets token proxy.pem ca.pem &&
    secret actor-secrets token ca.pem actor-cert.pem actor-key.pem
)"
if $dry_run; then
  printf '%s\n' "$secrets"
else
  check_cluster
  kubectl apply --filename=- <<< "$secrets"
fi
