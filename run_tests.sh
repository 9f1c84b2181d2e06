#!/usr/bin/env bash
# Sets up this checkout as ./run_local.sh does, builds the native libraries and runs all tests.
#
#   ./run_tests.sh [PYTEST ARGUMENTS ...]     e.g. ./run_tests.sh tests/grpc -m "not slow"
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
"$root/scripts/setup.sh" dev
cd "$root"
exec .venv/bin/python -m pytest "$@"
