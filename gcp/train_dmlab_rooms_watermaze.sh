#!/usr/bin/env bash
# V-trace on DeepMind Lab's rooms_watermaze with the settings of the IMPALA paper.
# The actors' image needs the engine (docs/environments/dmlab.md). Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" dmlab vtrace 150 1 \
  --game=rooms_watermaze \
  --learner_machine=a2-highgpu-1g \
  --actor_machine=n2-standard-16 --actors_per_machine=15 "$@"
