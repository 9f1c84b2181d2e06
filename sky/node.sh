#!/usr/bin/env bash
# What each node of sky/seed_rl.yaml runs: the first the learner, the others actors. SkyPilot sets
# SKYPILOT_*, the task file the rest.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

((SKYPILOT_NUM_NODES >= 2)) ||
  fail "num_nodes must be at least 2; on one node, use ./run_local.sh."
python="${PYTHON:-$PWD/.venv/bin/python}"
read -ra passed_on <<< "$FLAGS"
# When the learner is gone for a minute, it has finished, or all nodes are started again.
arguments=("$GAME" "$AGENT" "$((ACTORS_PER_NODE * (SKYPILOT_NUM_NODES - 1)))" "$ENVS_PER_ACTOR"
  "--logdir=$RUNS/$RUN" --stopped_exit_code=75 --reconnect_timeout_s=60 "${passed_on[@]}")

# The certificate is for a name, because addresses are not known in advance.
if [[ -z "${SEED_RL_ADDRESS:-}" ]]; then
  hosts="$(grep -v '# SEED RL$' /etc/hosts)"
  printf '%s\n%s learner # SEED RL\n' "$hosts" "${SKYPILOT_NODE_IPS%%$'\n'*}" |
    sudo tee /etc/hosts > /dev/null
  export SEED_RL_ADDRESS=learner:8686
fi

if [[ "$SKYPILOT_NODE_RANK" == 0 ]]; then
  # Only this cluster's nodes reach its port.
  exec "$python" -m seed_rl.cluster "${arguments[@]}" --insecure
fi

# From here on, a learner that cannot be reached is one that has gone. Twenty minutes: one that
# resumes reads its files, maybe a large replay, from the bucket first.
for ((waited = 0; ; waited += 5)); do
  # shellcheck disable=SC2016 # The inner shell expands it.
  if timeout 5 bash -c ': < "/dev/tcp/$1"' bash "${SEED_RL_ADDRESS/://}" 2> /dev/null; then break; fi
  ((waited % 60 != 0)) || echo "waiting for the learner at $SEED_RL_ADDRESS (for $waited s)"
  ((waited < ${LEARNER_TIMEOUT_S:-1200})) ||
    fail "no learner at $SEED_RL_ADDRESS for $waited s: the log of the first node says why. If it" \
      "runs, a firewall between the nodes closes the port."
  sleep 5
done

trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
export SEED_RL_ROLE=actor
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  SEED_RL_INDEX=$(((SKYPILOT_NODE_RANK - 1) * ACTORS_PER_NODE + actor)) \
    "$python" -m seed_rl.cluster "${arguments[@]}" &
done
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  status=0
  wait -n || status=$?
  # 4: the learner has gone. Its own exit code shows SkyPilot whether it had finished.
  # After other failures SkyPilot starts all nodes again, max_restarts_on_errors times
  # (seed_rl.yaml); nothing is started again here.
  ((status == 4)) || exit "$status"
done
