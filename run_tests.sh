#!/usr/bin/env bash
# Sets up this checkout as ./run_local.sh does, builds the native libraries and runs all tests.
#
#   ./run_tests.sh [PYTEST ARGUMENTS ...]     e.g. ./run_tests.sh tests/grpc -m "not slow"
#
# Runs tests in parallel processes, unless arguments select tests (paths, -k, --lf) or say how many
# processes to use (-n0).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
"$root/scripts/setup.sh" dev
cd "$root"

# More than four would get in each other's way: many tests start several processes themselves.
parallel=(-n auto --maxprocesses 4 --dist worksteal)
for argument in "$@"; do
  case "$argument" in
    tests* | ./tests* | "$root"* | -k* | -n* | --lf | --pdb) parallel=() ;;
  esac
done
exec .venv/bin/python -m pytest "${parallel[@]}" "$@"
