#!/usr/bin/env bash
# Prepares this checkout: system packages, the virtual environment .venv, the native libraries.
#
#   scripts/setup.sh EXTRAS      for instance: scripts/setup.sh atari   or   scripts/setup.sh dev
#
# A checkout that is already set up is recognized within a tenth of a second. PYTHON names the
# interpreter to make .venv with (default: python3).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
extras="${1:-}"
python="${PYTHON:-python3}"
venv="$root/.venv"
stamp="$venv/.seed_rl_setup_${extras//,/_}"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What the installation was made from: when it changes, it is brought up to date.
fingerprint() {
  (
    cd "$root"
    echo "$extras $root"
    readlink -f "$venv/bin/python" || true
    find setup.py pyproject.toml seed_rl \( -name '*.cc' -o -name '*.h' -o -name setup.py \
      -o -name pyproject.toml \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  ) | sha256sum
}

is_ready() {
  [[ -x "$venv/bin/python" && -f "$stamp" && "$(cat "$stamp")" == "$(fingerprint)" ]] &&
    [[ -f "$root/seed_rl/_native/build_info.json" ]]
}

missing_system_packages() {
  command -v "$python" > /dev/null || echo python3
  if [[ ! -x "$venv/bin/pip" ]]; then
    "$python" -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv
  fi
  command -v "${CXX:-g++}" > /dev/null || echo g++
  command -v pkg-config > /dev/null || echo pkg-config
  pkg-config --exists grpc++ 2> /dev/null || echo libgrpc++-dev
  pkg-config --exists libzstd 2> /dev/null || echo libzstd-dev
  # The tests make certificates.
  if [[ ",$extras," == *,dev,* ]]; then command -v openssl > /dev/null || echo openssl; fi
}

install_system_packages() {
  local packages=("$@") as_root=()
  local command="apt-get install --yes --no-install-recommends ${packages[*]}"
  if [[ "$(id -u)" != 0 ]]; then
    as_root=(sudo -n)
    sudo -n true 2> /dev/null || fail "system packages are missing. Install them, then start again:

    sudo ${command}
"
  fi
  command -v apt-get > /dev/null ||
    fail "system packages are missing (named as on Debian): ${packages[*]}"
  say "installing system packages: ${packages[*]}"
  # An image may come without package lists, or with old ones.
  "${as_root[@]}" apt-get -qq update || say "apt-get update failed; trying with the lists there are"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes \
    --no-install-recommends "${packages[@]}" > /dev/null
}

check_python() {
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    fail "Python 3.10 to 3.13 is needed, but $python is $("$python" -V 2>&1). Name another one:" \
      "PYTHON=python3.11 $0 ..."
}

main() {
  if is_ready; then
    return
  fi
  local missing quiet=(--quiet) pip=("$venv/bin/python" -m pip --disable-pip-version-check)
  # One at a time: a second run may be starting in another terminal.
  mkdir -p "$root/build"
  exec 9> "$root/build/setup.lock"
  flock 9
  if is_ready; then
    return
  fi
  mapfile -t missing < <(missing_system_packages)
  if ((${#missing[@]})); then
    install_system_packages "${missing[@]}"
  fi
  check_python
  if [[ ! -x "$venv/bin/pip" ]]; then
    say "making the virtual environment $venv"
    "$python" -m venv "$venv"
  fi
  # First what the build needs, in this environment: an isolated build would fetch a second copy of
  # TensorFlow only to throw it away.
  say "installing TensorFlow and the build tools (a few minutes the first time)"
  # Progress bars for people while the large packages come, few lines otherwise.
  if [[ -t 2 ]] && ! compgen -G "$venv/lib/python*/site-packages/tensorflow" > /dev/null; then
    quiet=()
  fi
  "${pip[@]}" install "${quiet[@]}" "setuptools>=77" wheel "$(tensorflow_requirement)" >&2
  say "building the native libraries, installing seed_rl[$extras]"
  # (setuptools warns, whatever the layout, that editable installations can surprise.)
  PYTHONWARNINGS=ignore "${pip[@]}" install --quiet --no-build-isolation \
    --editable "$root${extras:+[$extras]}" >&2
  fingerprint > "$stamp"
  say "done"
}

tensorflow_requirement() {
  grep -o '"tensorflow[<>=][^"]*"' "$root/pyproject.toml" | head -n 1 | tr -d '"'
}

main
