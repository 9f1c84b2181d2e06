#!/usr/bin/env bash
# V-trace on all of DMLab-30 in one run, as in the IMPALA paper (Espeholt et al. 2018, section 5.3).
# The actors' image needs the engine and, for two levels, its images: --dataset_path=... there
# (docs/environments/dmlab.md). Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" dmlab vtrace 150 1 \
  --flagfile=seed_rl/dmlab/impala_dmlab30.flags \
  --learner_machine=a2-highgpu-1g \
  --actor_machine=n2-standard-16 --actors_per_machine=15 "$@"
