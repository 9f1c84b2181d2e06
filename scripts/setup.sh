#!/usr/bin/env bash
# Sets up this checkout: system packages, the virtual environment .venv, the native libraries.
#
#   scripts/setup.sh [EXTRA,...]      e.g. scripts/setup.sh atari   or   scripts/setup.sh mujoco,video
#
# Extras accumulate: `scripts/setup.sh video` only adds what videos need. Where nvidia-smi finds a GPU,
# `gpu` (TensorFlow's CUDA libraries) is added. Takes a tenth of a second
# if there is nothing to do. PYTHON is the interpreter that creates .venv (default: python3).
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
requested="$(IFS=,; echo "$*")"
python="${PYTHON:-python3}"
venv="$root/.venv"
# One stamp file for the native libraries ("native"), one for the package's requirements ("base")
# and one per extra; each holds the fingerprint of what was built or installed.
stamp="$venv/.seed_rl_setup_"
report_s="${SETUP_REPORT_S:-30}"
reporter=""
compiler=""
trap 'kill $reporter $compiler 2> /dev/null || true' EXIT

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  echo "Extras: $(known_extras | paste -sd ' ')"
}

known_extras() {
  sed -n '/^\[project.optional-dependencies\]/,/^\[[^]]*\]$/s/^\([a-z0-9_-]*\) = \[.*/\1/p' \
    "$root/pyproject.toml"
}

check_extras() {
  local extra
  for extra in ${requested//,/ }; do
    known_extras | grep -qx -e "$extra" ||
      fail "unknown extra \"$extra\"; choose from: $(known_extras | paste -sd ' ')"
  done
}

# The native libraries' sources, and what they were and would be built against.
native_fingerprint() {
  (
    cd "$root"
    echo "$root"
    readlink -f "$venv/bin/python" || true
    find setup.py seed_rl \( -name '*.cc' -o -name '*.h' -o -name setup.py \) -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
    cat seed_rl/_native/build_info.json || true
    echo seed_rl/_native/*.so "$venv"/lib/python*/site-packages/tensorflow*.dist-info
    # Asking pkg-config for gRPC's version would take half a second.
    local folder folders
    folders="$(pkg-config --variable=pc_path pkg-config || true)"
    folders="${PKG_CONFIG_PATH:-}:${PKG_CONFIG_LIBDIR:-$folders}"
    for folder in ${folders//:/ }; do
      cat "$folder"/{grpc++,libzstd}.pc || true
    done
  ) 2> /dev/null | sha256sum
}

# What determines the Python packages.
packages_fingerprint() {
  (
    echo "$root"
    readlink -f "$venv/bin/python" || true
    cat "$root/pyproject.toml"
  ) | sha256sum
}

is_current() { # WHAT FINGERPRINT
  [[ -f "$stamp$1" && "$(< "$stamp$1")" == "$2" ]]
}

libraries_are_current() {
  [[ -x "$venv/bin/python" ]] && is_current base "$(packages_fingerprint)" &&
    is_current native "$(native_fingerprint)"
}

missing_extras() {
  local extra fingerprint
  fingerprint="$(packages_fingerprint)"
  for extra in ${requested//,/ }; do
    is_current "$extra" "$fingerprint" || echo "$extra"
  done
}

is_ready() { libraries_are_current && [[ -z "$(missing_extras)" ]]; }

# All extras requested now or earlier, separated by commas.
all_extras() {
  local extra
  for extra in $(known_extras); do
    if [[ ",$requested," == *",$extra,"* || -f "$stamp$extra" ]]; then echo "$extra"; fi
  done | paste -sd ,
}

# The system's Python may have been upgraded or removed under an environment.
has_pip() { "$venv/bin/python" -c 'import pip' 2> /dev/null; }

missing_system_packages() {
  if ! has_pip; then
    command -v "$python" > /dev/null || echo python3
    "$python" -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv
  fi
  command -v "${CXX:-g++}" > /dev/null || echo g++
  command -v pkg-config > /dev/null || echo pkg-config
  pkg-config --exists grpc++ 2> /dev/null || echo libgrpc++-dev
  pkg-config --exists libzstd 2> /dev/null || echo libzstd-dev
  missing_test_packages
}

# The tests create certificates, start proxies, and build the client in C++.
missing_test_packages() {
  if [[ ",$requested," == *,dev,* ]]; then
    command -v openssl > /dev/null || echo openssl
    command -v haproxy > /dev/null || [[ -x /usr/sbin/haproxy ]] || echo haproxy
    command -v cmake > /dev/null || echo cmake
    pkg-config --exists nlohmann_json 2> /dev/null || echo nlohmann-json3-dev
  fi
}

install_system_packages() { # FUNCTION THAT PRINTS WHICH
  local packages as_root=()
  mapfile -t packages < <("$1")
  ((${#packages[@]})) || return 0
  local command="apt-get install --yes --no-install-recommends ${packages[*]}"
  command -v apt-get > /dev/null ||
    fail "system packages are missing (Debian names): ${packages[*]}" \
      "Install them, or a wheel: docs/installation.md"
  if [[ "$(id -u)" != 0 ]]; then
    as_root=(sudo -n)
    sudo -n true 2> /dev/null || fail "system packages are missing. Install them, then try again:

    sudo ${command}
"
  fi
  # Container images may have no package lists, or old ones.
  "${as_root[@]}" apt-get -qq update || say "apt-get update failed; trying the existing lists"
  reporting "installing system packages: ${packages[*]}" "${as_root[@]}" \
    env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
    "${packages[@]}"
}

check_python() { # PYTHON REMEDY
  "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    fail "Python 3.10 to 3.13 is required, but $1 is $("$1" -V 2>&1). $2"
}

# Runs a command after announcing it, and reports every half minute that it is still running.
reporting() { # WHAT COMMAND ...
  local what="$1" result=0
  shift
  say "$what"
  still "${what% (*}" &
  reporter=$!
  "$@" >&2 || result=$?
  kill "$reporter" 2> /dev/null || true
  wait "$reporter" 2> /dev/null || true
  reporter=""
  return "$result"
}

still() { # WHAT
  local parent=$$ start=$SECONDS passed nothing
  exec {nothing}<> <(:)
  # Wait with `read`: a `sleep` would outlive this loop and hold the terminal.
  while read -rt "$report_s" -u "$nothing" _ || kill -0 "$parent" 2> /dev/null; do
    passed=$((SECONDS - start))
    say "still $1 ($((passed / 60)) min $((passed % 60)) s)"
  done
}

install_all() {
  local extras quiet=(--quiet) clear
  has_pip || [[ -z "${PYTHON:-}" ]] || command -v "$PYTHON" > /dev/null ||
    fail "PYTHON=$PYTHON is not found; install it, or choose another"
  install_system_packages missing_system_packages
  if has_pip; then
    check_python "$venv/bin/python" "Delete $venv, then try again."
  else
    check_python "$python" "Choose another: PYTHON=python3.11 $0 ..."
    requested="$(all_extras)" # Their stamps are cleared, too.
    # What is in an environment that only lacks pip, as uv makes them, stays.
    "$venv/bin/python" -c '' 2> /dev/null && clear=() || clear=(--clear)
    reporting "creating the virtual environment $venv" "$python" -m venv "${clear[@]}" "$venv"
  fi
  # In a terminal, show progress bars for the large downloads.
  if [[ -t 2 ]] && ! compgen -G "$venv/lib/python*/site-packages/tensorflow" > /dev/null; then
    quiet=()
  fi
  "${pip[@]}" install --quiet "setuptools>=77" wheel
  # setuptools warns about every editable installation.
  SEED_RL_NATIVE=later PYTHONWARNINGS=ignore "${pip[@]}" install --quiet --no-deps \
    --no-build-isolation --editable "$root"
  # Compile while pip unpacks: TensorFlow alone first, for its headers.
  compiling --without-tensorflow
  reporting "installing TensorFlow (a few minutes the first time)" \
    "${pip[@]}" install "${quiet[@]}" --no-deps "$(tensorflow_requirement)"
  compiled
  extras="$(all_extras)"
  compiling --inplace
  reporting "building the native libraries, installing seed_rl[$extras]" \
    "${pip[@]}" install --quiet "seed-rl${extras:+[$extras]}"
  compiled
  native_fingerprint > "${stamp}native"
  mark_installed base "$extras"
}

# Compiles in the background, until `compiled`.
compiling() { # OPTIONS OF build_ext ...
  (cd "$root" && exec "$venv/bin/python" -W ignore setup.py --quiet build_ext "$@") \
    > "$root/build/native.log" 2>&1 &
  compiler=$!
}

compiled() {
  local result=0
  wait "$compiler" || result=$?
  compiler=""
  if ((result)); then
    cat "$root/build/native.log" >&2
    return "$result"
  fi
}

# pip reads the extras' requirements from the installed package, without building anything.
add_extras() {
  local extras
  extras="$(missing_extras | paste -sd ,)"
  reporting "installing the requirements of seed_rl[$extras]" \
    "${pip[@]}" install --quiet "seed-rl[$extras]"
  mark_installed "$extras"
}

mark_installed() { # EXTRA,... ...
  local what all="$*"
  for what in ${all//,/ }; do packages_fingerprint > "$stamp$what"; done
}

tensorflow_requirement() {
  grep -o '"tensorflow[<>=][^"]*"' "$root/pyproject.toml" | head -n 1 | tr -d '"'
}

main() {
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check)
  [[ "$OSTYPE" == linux* ]] ||
    fail "SEED RL needs Linux; elsewhere, use Docker or, on Windows, WSL: docs/platforms.md"
  case "$requested" in
    -h | --help)
      usage
      return
      ;;
  esac
  check_extras
  if [[ ! -f "${stamp}gpu" ]] && command -v nvidia-smi && nvidia-smi -L; then
    requested="${requested:+$requested,}gpu"
  fi > /dev/null 2>&1
  if is_ready; then
    return
  fi
  # Only one at a time: another run may be starting in another terminal.
  mkdir -p "$root/build"
  exec 9> "$root/build/setup.lock"
  flock -n 9 || { say "waiting for another setup of this checkout"; flock 9; }
  if is_ready; then
    return
  fi
  if libraries_are_current; then
    install_system_packages missing_test_packages
    add_extras
  else
    install_all
  fi
  say "done"
}

main
