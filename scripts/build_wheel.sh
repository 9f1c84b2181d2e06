#!/usr/bin/env bash
# Builds a wheel that works where no gRPC is installed: gRPC's libraries are bundled into it.
#
#   scripts/build_wheel.sh [FOLDER]     writes the wheel into FOLDER (default: dist)
#
# TensorFlow's library is left out: the wheel depends on TensorFlow, which brings it. The wheel
# serves every Python version, and systems whose C library is at least as new as this one's (its
# manylinux tag tells).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="$(realpath -m "${1:-$root/dist}")"
"$root/scripts/setup.sh" dev
export PATH="$root/.venv/bin:$PATH"

# setuptools would put into the wheel whatever an earlier build left here.
rm -rf "$root"/build/lib* "$root"/build/bdist*
raw="$(mktemp -d)"
trap 'rm -rf "$raw"' EXIT
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$raw" "$root"
python -m auditwheel repair --exclude 'libtensorflow_framework.so*' --wheel-dir "$target" "$raw"/*.whl
