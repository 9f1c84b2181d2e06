#!/usr/bin/env bash
# Builds the native code that many threads share with a sanitizer, and runs its stress programs.
#
# Usage: scripts/stress.sh [address|thread] [ROUNDS]
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
sanitizer="${1:-address}"
rounds="${2:-6}"
build="build/stress/${sanitizer}"
mkdir -p "${build}"

case "${sanitizer}" in
  address) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
  thread) flags=(-fsanitize=thread) ;;
  *)
    echo "usage: $0 [address|thread] [ROUNDS]" >&2
    exit 2
    ;;
esac

# Compiles the named sources and options to a program.
compile() {
  local program="$1"
  shift
  "${CXX:-g++}" -std=c++17 -O1 -g -Wall "${flags[@]}" -I. "$@" -o "${build}/${program}" -pthread
}

compile store seed_rl/common/native/unrolls/inference_store.cc \
  tests/common/inference/native/store_stress.cc
"${build}/store" "${rounds}"

read -ra packages <<<"$(pkg-config --cflags --libs grpc++)"
compile transport seed_rl/grpc/native/transport/*.cc tests/grpc/native/stress/*.cc "${packages[@]}"
"${build}/transport" batcher "${rounds}"
# gRPC is not instrumented: its own synchronization looks like races.
if [[ "${sanitizer}" != thread ]]; then
  "${build}/transport" service "${rounds}"
fi
