#!/usr/bin/env bash
# Checks of the server that take too long for every change: sanitizers, long attacks, long fuzzing.
# A quarter of an hour on two cores; docs/native_op.md has the last result.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh dev
tests/grpc/native/run_stress.sh address 3
tests/grpc/native/run_stress.sh thread 3
.venv/bin/python -m benchmarks.hostile --seconds=10
SEED_RL_FUZZ_MESSAGES=1000000 SEED_RL_FUZZ_SEED="${RANDOM}" \
  .venv/bin/python -m pytest -q tests/grpc/test_fuzz.py
