#!/usr/bin/env bash
# Runs the studies behind docs/results, one after the other and niced: an estimated 30 hours or more on two cores.
# Ctrl-C saves and stops; the same command continues. Runs whose results are in docs/results are not
# run again, so another machine continues from a clone.
#
# scripts/results.sh [DIRECTORY]         (default: runs/results)
# scripts/results.sh --keep [DIRECTORY]  only copies the results so far to docs/results
#
# Run it from a checkout of its own, which nothing changes meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=1
if [[ "${1:-}" == --keep ]]; then
  runs=
  shift
fi
directory=${1:-runs/results}
kept=docs/results
studies=(
  mujoco_ppo mujoco_ppo_v4 atari_ppo_cleanrl atari_ppo mujoco_sac football_academy atari_r2d2
  atari_classics_vtrace pong_vtrace atari5_vtrace freeway_vtrace
)

study() { # NAME [OPTION ...]
  nice -n 10 .venv/bin/seed-rl study "studies/$1.json" --directory="$directory/$1" "${@:2}"
}

copy_results() { # FROM TO
  mkdir -p "$2"
  cp "$1"/{study.json,results.csv,curves.csv} "$2"
}

stopped=
trap 'stopped=1' INT TERM
failed=0
for name in "${studies[@]}"; do
  if [[ -n "$runs" ]]; then
    if [[ ! -e "$directory/$name" && -e "$kept/$name" ]]; then
      copy_results "$kept/$name" "$directory/$name"
    fi
    study "$name" || failed=$?
  elif [[ -e "$directory/$name/study.json" ]]; then
    study "$name" --results_only > /dev/null || failed=$?
    if grep -q ',done,' "$directory/$name/results.csv"; then
      copy_results "$directory/$name" "$kept/$name"
    fi
  fi
  [[ -z $stopped ]] || break
done
exit "$failed"
