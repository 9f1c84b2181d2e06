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
# Twenty minutes: a learner that resumes reads its files, maybe a large replay, from the bucket first.
arguments=("$GAME" "$AGENT" "$((ACTORS_PER_NODE * (SKYPILOT_NUM_NODES - 1)))" "$ENVS_PER_ACTOR"
  "--logdir=$RUNS/$RUN" --stopped_exit_code=75 --connect_timeout_s=1200 "${passed_on[@]}")

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

trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
export SEED_RL_ROLE=actor
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  SEED_RL_INDEX=$(((SKYPILOT_NODE_RANK - 1) * ACTORS_PER_NODE + actor)) \
    "$python" -m seed_rl.cluster "${arguments[@]}" &
done
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  # 0: the learner has said that training is done. After anything else SkyPilot starts all nodes
  # again, max_restarts_on_errors times (seed_rl.yaml); nothing is started again here.
  wait -n
done
