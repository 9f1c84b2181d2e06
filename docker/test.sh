#!/usr/bin/env bash
# Builds the images for Atari and trains with them: one learner and two actors, each in a container
# of its own, over TCP with token and TLS. Stops the learner, resumes, and looks at what is left.
#
#   docker/test.sh
#
# Takes a few minutes and 3 GB of the engine's disk. Needs the host's network in containers. Some
# engines also need it for building: DOCKER_BUILD_ARGS="--network host" docker/test.sh
set -euo pipefail

# shellcheck source=docker/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit_mb=450 # Of the actor's image.
frames=20000 # Before the learner is stopped, and as many after.
case "${1:-}" in -h | --help) usage && exit ;; esac
check_engine

work="$(mktemp -d)"
chmod 711 "$work"
id="seed-rl-test-$$"
containers=("$id-learner" "$id-actor-0" "$id-actor-1" "$id-proxy")
# As whom the containers run: as the caller, but never as root.
user="$(id -u):$(id -g)"
[[ "$user" != 0:* ]] || user=1000:1000
trap finish EXIT

finish() {
  local result=$? container
  if ((result)); then
    for container in "${containers[@]}"; do
      docker logs --tail 20 "$container" 2>&1 | sed "s/^/$container: /" || true
    done
    find "$work" -path '*/logs/*' -exec tail -n 20 {} + || true
  fi
  docker rm --force "${containers[@]}" > /dev/null 2>&1 || true
  rm -rf "$work"
  ((result == 0)) || say "FAILED"
}

# Prints what has been seen, with the seconds since the start.
seen() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
wrong() { printf 'wrong: %s\n' "$*" >&2; exit 1; }

progress() { # FIELD
  sed -n "s/.*\"$1\": *\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" "$work/runs/pong/progress.json" 2> /dev/null || true
}

wait_for() { # SECONDS WHAT COMMAND ...
  local until=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@"; do
    ((SECONDS < until)) || wrong "$what not seen in time"
    sleep 1
  done
}

is_running() { [[ "$(docker inspect --format '{{.State.Running}}' "$1")" == true ]]; }
is_healthy() { [[ "$(docker inspect --format '{{.State.Health.Status}}' "$id-learner")" == healthy ]]; }
has_trained() { # FRAMES
  local now
  is_running "$id-learner" || wrong "the learner has ended"
  now="$(progress frames)"
  [[ "$(progress phase)" == training ]] && ((${now:-0} >= $1))
}
exit_code() { docker inspect --format '{{.State.ExitCode}}' "$1"; }

free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do
    # Nobody listens there.
    (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
  done
  echo "$port"
}

check_images() {
  local megabytes what
  for what in "$learner" "$actor"; do
    in_image "$what" '! id | grep "uid=0"' || wrong "$what runs as root"
    in_image "$what" '! command -v g++ gcc cc c++ ld' || wrong "$what has a compiler"
    in_image "$what" '! ls /run/secrets /secrets 2> /dev/null | grep .' || wrong "$what has secrets"
    [[ -n "$(label "$what" org.opencontainers.image.version)" ]] || wrong "$what has no version"
    docker image inspect --format '{{.Size}}' "$what" |
      { read -r bytes && seen "$what: $((bytes / 1000000)) MB"; }
  done
  in_image "$actor" '! python -c "import tensorflow" 2> /dev/null' || wrong "actors have TensorFlow"
  megabytes=$(($(docker image inspect --format '{{.Size}}' "$actor") / 1000000))
  ((megabytes <= limit_mb)) || wrong "$actor has $megabytes MB, more than $limit_mb"
}

in_image() { docker run --rm --network host "${run_args[@]}" --entrypoint sh "$1" -c "$2"; }
label() { docker image inspect --format "{{index .Config.Labels \"$2\"}}" "$1"; }

start_one() { # ROLE NAME IMAGE TOTAL_FRAMES
  docker run --detach --name "$2" --network host --user "$user" "${run_args[@]}" \
    --health-interval 5s \
    --env "SEED_RL_ROLE=$1" --env "SEED_RL_ADDRESS=localhost:$port" \
    --env SEED_RL_BIND=0.0.0.0 --env SEED_RL_SECRETS=/secrets --env SEED_RL_INDEX_DIR=/index \
    --env SEED_RL_PROXY=/index/learner.sock \
    --volume "$work/secrets-$1:/secrets:ro" --volume "$work/index:/index" \
    --volume "$work/runs:/runs" "$3" "${run[@]}" "--total_environment_frames=$4" > /dev/null
}

learner="$(learner_image atari)"
actor="$(actor_image atari)"
"$root/docker/build.sh" atari > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
seen "images built"
check_images
seen "no root, no compiler, no secrets; no TensorFlow in the actor"

"$root/scripts/make_secrets.sh" "$work/secrets" localhost > /dev/null
mkdir "$work/runs" "$work/index" "$work/secrets-learner" "$work/secrets-actor"
cp "$work"/secrets/{token,proxy.pem,ca.pem} "$work/secrets-learner"
cp "$work"/secrets/{token,ca.pem,actor-cert.pem,actor-key.pem} "$work/secrets-actor"
cp -r "$work/secrets-learner" "$work/secrets-proxy"
[[ "$(id -u)" != 0 ]] || chown -R "$user" "$work"/{runs,index,secrets-*}
port="$(free_port)"
run=(atari vtrace 2 4 --game=Pong --logdir=/runs/pong --batch_size=8 --unroll_length=20)
many=1000000000

start_one proxy "$id-proxy" "$learner" "$many"
start_one learner "$id-learner" "$learner" "$many"
start_one actor "$id-actor-0" "$actor" "$many"
start_one actor "$id-actor-1" "$actor" "$many"
wait_for 300 "training" has_trained "$frames"
before="$(progress frames)"
seen "learner and two actors have trained for $before frames"
docker exec "$id-learner" python -m seed_rl.cluster.health || wrong "the learner is not healthy"
wait_for 60 "health" is_healthy
locks=("$work"/index/actor-*.lock)
((${#locks[@]} == 2)) || wrong "the actors have claimed ${locks[*]}"
seen "the engine calls the learner healthy; the actors claimed indices 0 and 1"

docker stop --time 60 "$id-learner" > /dev/null
code="$(exit_code "$id-learner")"
((code == 0)) || wrong "the learner ended with $code when stopped"
[[ "$(progress phase)" == stopped ]] || wrong "the stopped learner left phase $(progress phase)"
stopped="$(progress frames)"
seen "SIGTERM: the learner has saved at $stopped frames and ended with 0"

docker rm "$id-learner" > /dev/null
start_one learner "$id-learner" "$learner" "$((stopped + frames))"
has_ended() { ! is_running "$id-learner"; }
wait_for 300 "the end" has_ended
code="$(exit_code "$id-learner")"
((code == 0)) || wrong "the learner ended with $code when it was done"
[[ "$(progress phase)" == "done" ]] || wrong "the learner left phase $(progress phase)"
[[ "$(docker logs "$id-learner" 2>&1)" == *"Resuming after $stopped environment frames"* ]] ||
  wrong "the learner did not resume"
seen "a new learner resumed there, and is done at $(progress frames) frames"

for number in 0 1; do
  has_ended() { ! is_running "$id-actor-$number"; }
  wait_for 60 "the end of actor $number" has_ended
  code="$(exit_code "$id-actor-$number")"
  ((code == 0)) || wrong "actor $number ended with $code when training was done"
  [[ "$(docker logs "$id-actor-$number" 2>&1)" == *"training is done"* ]] ||
    wrong "actor $number did not return to the new learner"
done
strangers="$(find "$work/runs" "$work/index" ! -user "${user%:*}")"
[[ -z "$strangers" ]] || wrong "files of other users: $strangers"
seen "both actors returned to it and ended with 0; all files belong to user ${user%:*}"

# The same command as without containers.
"$root/run_local.sh" --docker atari vtrace 1 4 --game=Pong --batch_size=4 --unroll_length=20 \
  --total_environment_frames=1000000 "--logdir=$work/runs/local" > "$work/local.log" 2>&1 &
local_run=$!
is_local_training() { grep -qs '"phase": "training"' "$work/runs/local/progress.json"; }
wait_for 300 "training of run_local.sh" is_local_training
sleep 3
kill -TERM "$local_run"
wait "$local_run" || {
  code=$?
  cat "$work/local.log"
  wrong "run_local.sh --docker ended with $code"
}
grep -q '"phase": "stopped"' "$work/runs/local/progress.json" || wrong "run_local.sh saved nothing"
strangers="$(find "$work/runs/local" ! -user "$(id -u)")"
[[ -z "$strangers" ]] || wrong "files that are not the caller's: $strangers"
grep -q 'TensorBoard' "$work/local.log" || wrong "run_local.sh shows no TensorBoard"
seen "run_local.sh --docker trained, saved when stopped, and left files of its caller only"
seen "passed"
