#!/usr/bin/env bash
# Runs the studies behind docs/results, one after the other and niced: about 30 hours on two cores.
# Ctrl-C saves and stops; the same command continues. Finished studies are only checked.
#
# scripts/results.sh [DIRECTORY]    (default: runs/results)
#
# Run it from a checkout of its own, which nothing changes meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=${1:-runs/results}
studies=(
  mujoco_ppo atari_classics_vtrace mujoco_sac football_academy atari_r2d2 atari_ppo atari5_vtrace
)

stopped=
trap 'stopped=1' INT TERM
failed=0
for name in "${studies[@]}"; do
  nice -n 10 .venv/bin/python -m seed_rl.study "studies/$name.json" \
    --directory="$directory/$name" || failed=$?
  [[ -z $stopped ]] || break
done
exit "$failed"
