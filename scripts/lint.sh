#!/usr/bin/env bash
# Checks style, types, shell scripts, Dockerfiles and C++ without running tests; `--fix` applies automatic fixes.
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# == 0 || "$*" == --fix ]] || { echo "usage: $0 [--fix]" >&2; exit 2; }
scripts/setup.sh dev
export PATH="$PWD/.venv/bin:$PATH"

mapfile -t shell_scripts < <(git ls-files '*.sh' .ci/run)
mapfile -t dockerfiles < <(git ls-files 'docker/Dockerfile.*' ':!*.dockerignore')
mapfile -t native_sources < <(git ls-files '*.cc' '*.h')
if [[ "${1:-}" == --fix ]]; then
  ruff check --fix || true # The rest is reported below.
  ruff format
  clang-format -i "${native_sources[@]}"
fi

failed=0
check() {
  printf '\n== %s\n' "$*"
  "$@" || failed=1
}

check ruff check
check ruff format --check
check mypy
check lint-imports --no-logo
check shellcheck "${shell_scripts[@]}"
check hadolint "${dockerfiles[@]}"
check clang-format --dry-run -Werror "${native_sources[@]}"
exit "$failed"
