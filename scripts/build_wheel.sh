#!/usr/bin/env bash
# Builds a wheel that bundles gRPC's libraries, so that it works without gRPC installed.
#
#   scripts/build_wheel.sh [FOLDER]     writes the wheel to FOLDER (default: dist)
#
# TensorFlow's library is not bundled: the wheel depends on TensorFlow. It works with every
# supported Python version, and with any C library at least as new as this system's (see its
# manylinux tag).
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="$(realpath -m "${1:-$root/dist}")"
"$root/scripts/setup.sh" wheel
export PATH="$root/.venv/bin:$PATH"

mkdir -p "$root/build"
exec 9> "$root/build/wheel.lock"  # One build at a time: they share setuptools' folders.
flock 9
# setuptools would include leftovers of earlier builds.
rm -rf "$root"/build/lib* "$root"/build/bdist*
raw="$(mktemp -d)"
trap 'rm -rf "$raw"' EXIT
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$raw" "$root"
python -m auditwheel repair --exclude 'libtensorflow_framework.so*' --wheel-dir "$target" "$raw"/*.whl
