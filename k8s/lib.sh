# shellcheck shell=bash
# What the scripts here share; they source it, and have a function `fail`.

# Which of the clusters that kubectl knows is meant.
context() { kubectl config current-context 2> /dev/null || echo "none: see kubectl config"; }

# kubectl's own messages about a cluster that it cannot reach are long and name no fix.
check_cluster() {
  local answer
  answer="$(kubectl get --raw=/version --request-timeout=20s 2>&1)" ||
    fail "kubectl does not reach a cluster: ${answer##*$'\n'}
The context is $(context). Your provider's tool makes one and logs you in; kubectl config
use-context NAME chooses among those that there are (kubectl config get-contexts)."
}
