#!/usr/bin/env bash
# Runs a command with a real Slurm of three nodes, all on this machine.
#
#   slurm/local_cluster.sh COMMAND [ARG ...]     e.g. slurm/local_cluster.sh bash
#   slurm/local_cluster.sh kill_node NODE        within COMMAND: the power of node1, node2 or node3
#                                                fails
#   slurm/local_cluster.sh start_node NODE       within COMMAND: it comes back
#
# Jobs are spread over the nodes. Each has CPUS CPUs (default: 4), whatever this machine has. Needs
# root, and installs Slurm and munge from the distribution (slurm-wlm, munge) if they are missing.
# Nothing else is left behind: when COMMAND ends, so do the jobs and the daemons.
# Exit codes: COMMAND's; 3: Slurm is not available.
set -euo pipefail

fail() { printf 'error: %s\n' "$*" >&2; exit 3; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# Kills a node's daemon and all that it has started, as a power failure would.
# shellcheck disable=SC2329  # Called by its name.
kill_node() {  # NODE
  kill -KILL "$(cat "$folder/run/$1")" 2> /dev/null || true
}

# In a process namespace of its own, which the kernel ends with its first process.
start_node() {  # NODE
  # shellcheck disable=SC2016  # The inner shell expands it; it also buries orphans.
  unshare --pid --fork --mount-proc --kill-child \
    bash -c 'slurmd -D -N "$1" & wait $!' bash "$1" < /dev/null > "$folder/log/$1.out" 2>&1 &
  echo $! > "$folder/run/$1"
  disown
}

# Starts Slurm's controller, and again if it crashes (22.05 does at times), as services are.
controller() {
  until slurmctld -D; do sleep 1; done
}

case "${1:-}" in
  '' | -h | --help) usage; exit 2 ;;
  kill_node | start_node)
    folder="$(dirname "${SLURM_CONF:?only within the cluster}")"
    [[ -n "${2:-}" && -e "$folder/run/$2" ]] || fail "there is no node ${2:-}"
    "$1" "$2"
    exit ;;
esac

[[ "$(id -u)" == 0 ]] || fail "Slurm's daemons must be started by root"
unshare --pid --fork --mount-proc true 2> /dev/null ||
  fail "this machine allows no process namespaces (a container needs --privileged for them)"
export PATH="$PATH:/usr/sbin:/sbin"
installed() { # PROGRAM ...
  local program
  for program; do command -v "$program" > /dev/null || return 1; done
}

if ! installed slurmctld slurmd munged sbatch; then
  command -v apt-get > /dev/null || fail "there is no Slurm (slurmctld, slurmd, munged, sbatch) here"
  echo "installing slurm-wlm and munge" >&2
  { apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge
  } > /dev/null || fail "apt-get cannot install slurm-wlm and munge"
fi

ulimit -c 0
folder="$(mktemp -d /tmp/seed_rl_slurm.XXXXXX)"
daemons=()
# shellcheck disable=SC2329  # Called by the trap.
finish() {
  local node
  set +e
  scancel --full --quiet --user="$(id -un)" 2> /dev/null
  for node in node1 node2 node3; do kill_node "$node"; done
  kill -KILL "${daemons[@]}" "$(cat "$folder/run/slurmctld.pid")" 2> /dev/null
  sleep 0.2
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

chmod 755 "$folder"
mkdir -p "$folder"/{munge,state,run,log} "$folder"/spool/node{1,2,3}
head -c 128 /dev/urandom > "$folder/munge/key"
chmod 400 "$folder/munge/key"
chown -R munge: "$folder/munge"

# Prints as many free ports as there are daemons.
free_ports() {
  local port
  for port in $(shuf -i 20000-32000 -n 100); do
    (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || echo "$port"
  done | head -n 4
}
mapfile -t ports < <(free_ports)
export SLURM_CONF="$folder/slurm.conf"
{
  cat << END
ClusterName=seed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
AuthInfo=socket=$folder/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU,CR_LLN
SlurmdParameters=config_overrides
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdSpoolDir=$folder/spool/%n
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdTimeout=5
KillWait=10
ReturnToService=2
END
  for i in 1 2 3; do
    echo "NodeName=node$i NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=${ports[i]}" \
      "CPUs=${CPUS:-4} RealMemory=32000"
  done
  echo "PartitionName=main Nodes=node[1-3] Default=YES MaxTime=INFINITE State=UP"
} > "$SLURM_CONF"

munge_files="--socket=$folder/munge/socket --key-file=$folder/munge/key"
munge_files+=" --pid-file=$folder/munge/pid --seed-file=$folder/munge/seed"
# shellcheck disable=SC2086  # The options are meant to be split.
setpriv --reuid=munge --regid=munge --clear-groups munged --foreground --force $munge_files \
  < /dev/null > "$folder/log/munged.out" 2>&1 &
daemons+=($!)
disown
controller < /dev/null > "$folder/log/slurmctld.out" 2>&1 &
daemons+=($!)
disown
for node in node1 node2 node3; do
  start_node "$node"
done
deadline=$((SECONDS + 60))
until [[ "$(sinfo --noheader --format=%D%t 2> /dev/null)" == 3idle ]]; do
  ((SECONDS < deadline)) || { tail -n 5 "$folder"/log/*.{out,log} >&2; fail "Slurm does not start"; }
  sleep 0.2
done
code=0
"$@" || code=$?
exit "$code"
