#!/usr/bin/env bash
# V-trace on Google Research Football, reward "scoring,checkpoints", with the paper's settings (Kurach et al.
# 2020), which are the program's defaults. Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" football vtrace 256 1 \
  --game=11_vs_11_easy_stochastic --reward_experiment=scoring,checkpoints \
  --name=football-vtrace-easy-checkpoints \
  --learner_machine=a2-highgpu-2g \
  --actor_machine=n2-standard-32 "$@"
