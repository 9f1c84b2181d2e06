#!/usr/bin/env bash
# What each node of sky/seed_rl.yaml runs: the first the learner (each of the first LEARNERS one of
# several), the others actors. SkyPilot sets SKYPILOT_*, the task file the rest.
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

learners="${LEARNERS:-1}"
((SKYPILOT_NUM_NODES > learners)) ||
  fail "num_nodes must be at least $((learners + 1)): $learners for the learner, others for actors." \
    "On one node, use ./run_local.sh."
python="${PYTHON:-$PWD/.venv/bin/python}"
read -rd '' -a passed_on <<< "$FLAGS" || true # All lines: it may be a block of YAML.
# Twenty minutes: a learner that resumes reads its files, maybe a large replay, from the bucket first.
actors=$((ACTORS_PER_NODE * (SKYPILOT_NUM_NODES - learners)))
arguments=("$GAME" "$AGENT" "$actors" "$ENVS_PER_ACTOR" "--learners=$learners"
  "--logdir=$RUNS/$RUN" --stopped_exit_code=75 --connect_timeout_s=1200 "${passed_on[@]}")

# The certificate is for names, because addresses are not known in advance: learner, learner-1, ...
if [[ -z "${SEED_RL_ADDRESS:-}" ]]; then
  hosts="$(grep -v '# SEED RL$' /etc/hosts)" name=learner
  mapfile -t ips <<< "$SKYPILOT_NODE_IPS"
  for ((i = 0; i < learners; i++)); do
    hosts+=$'\n'"${ips[i]} $name # SEED RL"
    SEED_RL_ADDRESS="${SEED_RL_ADDRESS:+$SEED_RL_ADDRESS,}$name:8686"
    name="learner-$((i + 1))"
  done
  sudo tee /etc/hosts <<< "$hosts" > /dev/null
  export SEED_RL_ADDRESS
fi

if ((SKYPILOT_NODE_RANK < learners)); then
  # Only this cluster's nodes reach its port. (Several need --insecure in FLAGS.)
  ((learners > 1)) || arguments+=(--insecure)
  exec "$python" -m seed_rl.cluster "${arguments[@]}"
fi

trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
export SEED_RL_ROLE=actor
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  SEED_RL_INDEX=$(((SKYPILOT_NODE_RANK - learners) * ACTORS_PER_NODE + actor)) \
    "$python" -m seed_rl.cluster "${arguments[@]}" &
done
for ((actor = 0; actor < ACTORS_PER_NODE; actor++)); do
  # 0: the learner has said that training is done. After anything else SkyPilot starts all nodes
  # again, max_restarts_on_errors times (seed_rl.yaml); nothing is started again here.
  wait -n
done
