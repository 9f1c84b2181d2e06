#!/usr/bin/env bash
# Stops a run started by ./run_local.sh; the run saves a checkpoint first.
#
#   ./stop_local.sh [LOGDIR]     default: the only active run under runs/
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python="${PYTHON:-python3}"
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m seed_rl.launch.stop "$@"
