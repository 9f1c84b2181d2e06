#!/usr/bin/env bash
# What takes too long for every change: sanitizers, long attacks and long fuzzing of the server, the
# tests marked nightly (packaging, examples and programs of the docs that train, the programs of the
# benchmarks, containers, a whole run on Slurm, repetitions of a test for further agents or losses),
# and those of SkyPilot's task file with its own parser. 45 minutes on
# two cores; docs/native_op.md has the last result.
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh dev
scripts/stress.sh address 3
scripts/stress.sh thread 3
.venv/bin/python -m benchmarks.hostile --seconds=10
SEED_RL_FUZZ_MESSAGES=1000000 SEED_RL_FUZZ_SEED="${RANDOM}" \
  .venv/bin/python -m pytest -q -m nightly --timeout=1800
sky/check.sh -k skypilot || [[ $? == 3 ]] # It says so where SkyPilot cannot be installed.
