#!/usr/bin/env bash
# Trains an agent on this machine: learner, actors and TensorBoard under one supervisor.
#
#   ./run_local.sh GAME AGENT ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#   ./run_local.sh PROGRAM.py [AGENT] ACTORS [ENVS_PER_ACTOR] [--flag=value ...]
#   ./run_local.sh --docker GAME AGENT ...      the same in a container: docs/deployment/docker.md
#
# See `./run_local.sh --help`. The first run sets everything up.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
docker=false
arguments=()
for argument in "$@"; do
  if [[ "$argument" == --docker ]]; then docker=true; else arguments+=("$argument"); fi
done
set -- "${arguments[@]}"
path="$root${PYTHONPATH:+:$PYTHONPATH}"
# Arguments are checked before anything is installed, so use any available Python.
python="$root/.venv/bin/python"
[[ -x "$python" ]] || python="${PYTHON:-python3}"
if "$docker" && ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null; then
  exec "$root/docker/run.sh" "$@" # This machine's Python cannot even check them.
fi
if ! command -v "$python" > /dev/null; then
  "$root/scripts/setup.sh" # Installs one.
  python="$root/.venv/bin/python"
fi
case " $* " in
  *" --help "* | *" -h "*) PYTHONPATH="$path" exec "$python" -m seed_rl.launch.arguments "$@" ;;
esac
extras="$(PYTHONPATH="$path" "$python" -m seed_rl.launch.arguments "$@")"
if "$docker"; then
  exec "$root/docker/run.sh" "$@"
fi
"$root/scripts/setup.sh" "$extras"
exec "$root/.venv/bin/python" -m seed_rl.launch.local "$@"
