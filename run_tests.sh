#!/usr/bin/env bash
# Sets up this checkout as ./run_local.sh does, builds the native libraries and runs tests.
#
#   ./run_tests.sh                            the quick tests, in minutes
#   ./run_tests.sh --all                      what every change must pass
#   ./run_tests.sh PYTEST ARGUMENTS ...       e.g. ./run_tests.sh tests/grpc -k proxy
#
# Runs tests in parallel processes, unless arguments select tests (paths, -k, -m, --lf) or say how
# many processes to use (-n0). scripts/nightly.sh runs what takes too long even for --all.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
"$root/scripts/setup.sh" dev
cd "$root"

# One more than cores, since many tests wait for processes that they start; more than four would
# get in each other's way.
parallel=(-n "$(($(nproc) + 1))" --maxprocesses 4 --dist worksteal)
selected=(-m "not slow and not nightly")
arguments=()
for argument in "$@"; do
  case "$argument" in
    --all)
      selected=(-m "not nightly")
      continue
      ;;
    tests* | ./tests* | "$root"* | -k* | -m* | --lf) parallel=() selected=() ;;
    -n* | --pdb) parallel=() ;;
  esac
  arguments+=("$argument")
done
exec .venv/bin/python -m pytest "${parallel[@]}" "${selected[@]}" "${arguments[@]}"
