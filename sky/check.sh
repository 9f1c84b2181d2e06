#!/usr/bin/env bash
# Validates sky/seed_rl.yaml with SkyPilot's own parser, offline: tests/sky, whose part that needs
# SkyPilot is skipped elsewhere, since SkyPilot with its dependencies is 460 MB. It is installed
# into build/skypilot; exit code 3 if that fails.
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh dev
python=build/skypilot/bin/python
if ! "$python" -c "from sky import Task" 2> /dev/null; then
  .venv/bin/python -m venv build/skypilot
  "$python" -m pip install --quiet "skypilot==0.14.1" || {
    echo "sky/check.sh: SkyPilot cannot be installed; its parser has not read the task." >&2
    exit 3
  }
fi
SKYPILOT_PYTHON="$PWD/$python" ./run_tests.sh tests/sky -n0 "$@"
