#!/usr/bin/env bash
# Builds Google Research Football's own engine as a wheel and installs it.
#
#   scripts/build_gfootball.sh [PYTHON]     PYTHON: the environment to install into
#                                           (default: .venv/bin/python of this checkout)
#
# Takes about five minutes on two cores, once per Python version: the wheel stays in wheelhouse/, and
# later calls only install it. Needs Debian or Ubuntu, and the system's own Python version, as
# Boost.Python is packaged for that one alone. The engine `envpool` (pip install envpool) needs none
# of this.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${1:-$root/.venv/bin/python}"
wheelhouse="$root/wheelhouse"
version=2.10.2
version_code='import sys; print("%d.%d" % sys.version_info[:2])'
# What the engine is compiled with, and the libraries that it loads.
system_packages=(
  cmake g++ make libboost-filesystem-dev libboost-python-dev libboost-system-dev
  libboost-thread-dev libegl-dev libgl-dev libopengl-dev libsdl2-dev libsdl2-gfx-dev
  libsdl2-image-dev libsdl2-ttf-dev python3-dev
)

say() { printf 'build_gfootball: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

install_system_packages() {
  local missing=() package
  for package in "${system_packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q '^install ok installed$' ||
      missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  command -v apt-get > /dev/null ||
    fail "needs Debian's packages ${missing[*]} or their counterparts on this system"
  say "installing ${missing[*]}"
  local as_root=()
  [[ $EUID == 0 ]] || as_root=(sudo)
  # Container images may have no package lists, or old ones.
  "${as_root[@]}" apt-get -qq update || say "apt-get update failed; trying the existing lists"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes \
    --no-install-recommends "${missing[@]}" > /dev/null
}

check_python() {
  [[ -x /usr/bin/python3 ]] || return 0
  local ours system
  ours="$("$python" -c "$version_code")"
  system="$(/usr/bin/python3 -c "$version_code")"
  [[ "$ours" == "$system" ]] ||
    fail "$python is Python $ours, but this system has Boost.Python for its own one alone: $system"
}

# In an environment of its own: the source package declares no build requirements (its build runs
# psutil), and it needs a setuptools from before 81.
build_wheel() {
  local scratch
  scratch="$(mktemp -d)"
  # shellcheck disable=SC2064  # The folder's name as it is now.
  trap "rm -rf '$scratch'" EXIT
  "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/python" -m pip install --quiet 'setuptools<81' 'wheel<0.46' psutil
  say "compiling the engine"
  PATH="$scratch/venv/bin:$PATH" "$scratch/venv/bin/python" -m pip wheel --no-deps \
    --no-build-isolation --no-binary gfootball --wheel-dir "$scratch" "gfootball==$version"
  # gfootball knows only gym's old interface; this is the last version that it works with.
  "$scratch/venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir "$scratch" gym==0.25.2
  mkdir -p "$wheelhouse"
  mv "$scratch"/*.whl "$wheelhouse"
}

[[ -x "$python" ]] || fail "$python is not there; run scripts/setup.sh first, or name a PYTHON"
tag="$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
compgen -G "$wheelhouse/gfootball-$version-$tag-*.whl" > /dev/null || wanted=1
check_python
install_system_packages
[[ -z "${wanted:-}" ]] || build_wheel
# Without their dependencies, of which these are needed. The others are for playing by hand, and
# gym-notices would say at each start that gym is old.
"$python" -m pip install --quiet --no-deps \
  "$wheelhouse"/gfootball-"$version"-"$tag"-*.whl "$wheelhouse"/gym-0.25.2-*.whl
"$python" -m pip install --quiet --no-warn-conflicts absl-py cloudpickle psutil six
"$python" -c 'import cv2' 2> /dev/null ||
  "$python" -m pip install --quiet --no-warn-conflicts opencv-python-headless
"$python" -c 'import gfootball.env' > /dev/null
say "installed gfootball $version into $("$python" -c 'import sys; print(sys.prefix)')"
