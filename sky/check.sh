#!/usr/bin/env bash
# Validates sky/seed_rl.yaml with SkyPilot's own parser, offline: tests/sky, whose part that needs
# SkyPilot is skipped elsewhere, since SkyPilot with its dependencies is 460 MB. It is installed
# into build/skypilot.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh dev
python=build/skypilot/bin/python
if ! "$python" -c "from sky import Task" 2> /dev/null; then
  .venv/bin/python -m venv build/skypilot
  "$python" -m pip install --quiet "skypilot==0.14.1"
fi
SKYPILOT_PYTHON="$PWD/$python" ./run_tests.sh tests/sky -n0 "$@"
