#!/usr/bin/env bash
# Stops a run that ./run_local.sh started elsewhere, in order: a checkpoint is saved first.
#
#   ./stop_local.sh [LOGDIR]     without LOGDIR: the one run that is going on under runs/
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PYTHONPATH="$root" exec "${PYTHON:-python3}" -m seed_rl.launch.stop "$@"
