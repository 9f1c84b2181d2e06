#!/usr/bin/env bash
# Builds the documentation into build/site; broken links are errors. `serve` serves it at
# http://localhost:8000 and rebuilds it on changes.
set -euo pipefail

CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# == 0 || "$1" == serve ]] || { echo "usage: $0 [serve [MKDOCS ARGUMENTS ...]]" >&2; exit 2; }
scripts/setup.sh docs
export NO_MKDOCS_2_WARNING=1 # Why we stay: docs/dependencies.md.
command=(build --strict)
if [[ $# != 0 ]]; then command=("$@"); fi
exec .venv/bin/python -m mkdocs "${command[@]}"
