#!/usr/bin/env bash
# Runs the studies behind docs/results, one after the other and niced: an estimated 70 hours on two
# cores in all. Ctrl-C, SIGTERM or a closed terminal saves and stops; the same command continues.
# Runs whose results are in docs/results are not run again, so another machine continues from a clone.
#
# scripts/results.sh [DIRECTORY]         (default: runs/results)
# scripts/results.sh --keep [DIRECTORY]  copies the results so far to docs/results and writes its tables
#
# Run it from a separate checkout that nothing else modifies meanwhile.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."

keep=
if [[ "${1:-}" == --keep ]]; then
  keep=1
  shift
fi
directory=${1:-runs/results}
kept=docs/results
studies=(
  mujoco_ppo mujoco_ppo_v4 atari_ppo_cleanrl football_academy atari_ppo atari_classics_laser
  mujoco_sac atari_r2d2 atari_pqn atari_classics_vtrace atari5_laser freeway_vtrace
)

copy_results() { # FROM TO
  mkdir -p "$2"
  cp "$1"/{study.json,results.csv,curves.csv} "$2"
}

keep_results() {
  local name
  for name in "${studies[@]}"; do
    [[ -e "$directory/$name/study.json" ]] || continue
    .venv/bin/seed-rl study "studies/$name.json" --logdir="$directory/$name" --results_only > /dev/null || failed=$?
    if grep -q ',done,' "$directory/$name/results.csv"; then
      copy_results "$directory/$name" "$kept/$name"
    fi
  done
  .venv/bin/seed-rl study aggregate "$kept"/*/ --references="$kept/references.csv" --page="$kept/README.md"
}

run_studies() {
  local name status
  for name in "${studies[@]}"; do
    if [[ ! -e "$directory/$name" && -e "$kept/$name" ]]; then
      copy_results "$kept/$name" "$directory/$name"
    fi
    nice -n 10 .venv/bin/seed-rl study "studies/$name.json" --logdir="$directory/$name" &
    study=$!
    status=0
    wait "$study" || status=$?
    if [[ -n $stopped ]]; then  # The trap ended the wait, not the study.
      status=0
      wait "$study" || status=$?
    fi
    ((status == 0)) || failed=$status
    [[ -z $stopped ]] || break
  done
}

scripts/setup.sh atari,football,mujoco,study
failed=0
if [[ -n $keep ]]; then
  keep_results
else
  set -m  # Ctrl-C reaches the study once, from the trap.
  stopped=
  study=
  trap 'stopped=1; [[ -z $study ]] || kill -INT "$study"' INT TERM HUP  # nohup's stays ignored.
  run_studies
fi
exit "$failed"
