#!/usr/bin/env bash
# One Atari game with V-trace as IMPALA's experts were trained (Espeholt et al. 2018, appendix G).
# Another game: --game=Breakout. Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" atari vtrace 32 8 \
  --flagfile=seed_rl/atari/impala_paper.flags --game=Pong \
  --learner_machine=a2-highgpu-1g --actor_machine=n2-standard-16 "$@"
