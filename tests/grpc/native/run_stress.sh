#!/usr/bin/env bash
# Builds the transport with a sanitizer and runs stress/ against it.
#
# Usage: tests/grpc/native/run_stress.sh [address|thread] [ROUNDS]
set -euo pipefail

sanitizer="${1:-address}"
rounds="${2:-6}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "${here}/../../.." && pwd)"
build="${root}/build/stress/${sanitizer}"
mkdir -p "${build}"

case "${sanitizer}" in
  address) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
  thread) flags=(-fsanitize=thread) ;;
  *)
    echo "usage: $0 [address|thread] [ROUNDS]" >&2
    exit 2
    ;;
esac

read -ra packages <<<"$(pkg-config --cflags --libs grpc++)"
"${CXX:-g++}" -std=c++17 -O1 -g -Wall "${flags[@]}" -I"${root}" \
  "${root}"/seed_rl/grpc/native/transport/*.cc "${here}"/stress/*.cc \
  -o "${build}/stress" "${packages[@]}" -pthread

"${build}/stress" batcher "${rounds}"
# gRPC is not instrumented: its own synchronization looks like races.
if [[ "${sanitizer}" != thread ]]; then
  "${build}/stress" service "${rounds}"
fi
