#!/usr/bin/env bash
# For each Python: builds a wheel, installs it into a new environment, and trains and plays with its
# command seed-rl: CartPole, and Pong with the extra.
#
#   scripts/check_pythons.sh [PYTHON ...]      default: python3.10 python3.11 python3.12 python3.13
#
#   scripts/check_pythons.sh ~/.pyenv/versions/3.1*/bin/python
#   scripts/in_debian.sh trixie scripts/check_pythons.sh python3
#
# Prints a Markdown table for docs/installation.md. Exit code 0: at least one Python was found, and
# all that were found passed. Each Python takes a few minutes and, temporarily, 4 GB.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
pythons=("$@")
((${#pythons[@]})) || pythons=(python3.10 python3.11 python3.12 python3.13)
frames=20000
rows=()
passed=0 failed=0

say() { printf 'check_pythons: %s\n' "$*" >&2; }

# Outside the checkout, so that nothing is imported from it. /tmp may be in memory.
work="$(mktemp -d "/var/tmp/seed_rl_pythons.XXXXXX")"
trap 'rm -rf "$work"' EXIT

step() { # LOG COMMAND ...
  local log="$1"
  shift
  "$@" > "$log" 2>&1 || {
    say "failed: $*"
    tail -n 40 "$log" >&2
    return 1
  }
}

make_wheel() { # PYTHON FOLDER; like a user, with pip fetching the build requirements
  "$1" -m venv "$2/build" &&
    TMPDIR="$2" step "$2/build.log" "$2/build/bin/python" -m pip wheel --no-deps \
      --wheel-dir "$2/raw" "$root" &&
    PATH="$root/.venv/bin:$PATH" step "$2/repair.log" "$root/.venv/bin/python" -m auditwheel repair \
      --exclude 'libtensorflow_framework.so*' --wheel-dir "$2/dist" "$2"/raw/*.whl
}

train() { # FOLDER
  local python="$1/env/bin/python" command="$1/env/bin/seed-rl"
  cd "$1" || return
  [[ "$("$python" -c 'import seed_rl; print(seed_rl.__file__)')" == "$1/env/"* ]] || {
    say "seed_rl was not imported from the wheel"
    return 1
  }
  step train.log "$command" train vtrace CartPole-v1 --actors=1 --envs=4 \
    "--total_environment_frames=$frames" --tensorboard=false --logdir="$1/run" &&
    step progress.log "$python" -c "from seed_rl.common.run_files import progress as p
assert p.read('run').frames >= $frames, p.read('run')" &&
    step play.log "$command" play "$1/run" --episodes=1 &&
    step pong.log "$command" train vtrace Pong --actors=1 --envs=4 --total_environment_frames=4000 \
      --batch_size=4 --tensorboard=false --logdir="$1/pong" &&
    step evaluate.log "$command" evaluate "$1/pong" --episodes=1 --envs=1 --steps=50
}

versions() { # FOLDER
  cd "$1" && env/bin/python - << 'END'
import importlib.metadata, json, pathlib, platform, seed_rl
info = pathlib.Path(seed_rl.__file__).with_name("_native") / "build_info.json"
packages = ("tensorflow", "numpy", "grpcio", "gymnasium")
versions = [platform.python_version(), *map(importlib.metadata.version, packages)]
print(" | ".join([*versions, json.loads(info.read_text())["grpc++"]]))
END
}

check() { # PYTHON FOLDER
  unset PYTHONPATH
  mkdir -p "$2"
  say "$1: building a wheel" && make_wheel "$1" "$2" &&
    say "$1: installing it" && "$1" -m venv "$2/env" &&
    step "$2/install.log" "$2/env/bin/python" -m pip install "$(echo "$2"/dist/*.whl)[gym,atari]" &&
    say "$1: training $frames frames" && (train "$2")
}

system="$(sed -n 's/^PRETTY_NAME="\([^"(]*[^"( ]\).*/\1/p' /etc/os-release)"
"$root/scripts/setup.sh" wheel
for python in "${pythons[@]}"; do
  # Run it: pyenv has shims for versions that are not available.
  if ! "$python" -c '' 2> /dev/null; then
    say "$python: not found, not checked"
    rows+=("| $python | – | – | – | – | – | $system | not found, not checked |")
    continue
  fi
  folder="$work/$((passed + failed))"
  if check "$python" "$folder" && row="$(versions "$folder")"; then
    ((++passed))
    rows+=("| Python $row | $system | passed |")
  else
    ((++failed))
    rows+=("| $("$python" -V) | – | – | – | – | – | $system | FAILED |")
  fi
  rm -rf "$folder"
done

echo "$(date --utc +%Y-%m-%d):"
echo
echo "| Python | TensorFlow | numpy | grpcio | Gymnasium | gRPC in the wheel | system | |"
echo "|---|---|---|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
((failed == 0 && passed > 0))
