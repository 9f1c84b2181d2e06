#!/usr/bin/env bash
# Checks that all agents train on this machine's GPU, and how fast.
#
#   scripts/check_gpu.sh [FILE] [--only=PART ...] [--workload=W3 ...] [--expect=cpu] [--quick]
#
# FILE (default: build/check_gpu.md) gets the report in Markdown, for docs/scale.md. --expect=cpu tries
# the program out where there is no GPU. Exit code 0: everything ran on the device.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."

report=build/check_gpu.md
if [[ $# -gt 0 && "$1" != -* ]]; then
  report=$1
  shift
fi
scripts/setup.sh atari,gym,mujoco
mkdir -p "$(dirname "$report")"
.venv/bin/python -m benchmarks.accelerator "$@" | tee "$report"
echo "check_gpu: the report is in $report" >&2
