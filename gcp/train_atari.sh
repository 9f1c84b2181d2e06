#!/usr/bin/env bash
# One Atari game with R2D2 as published (Kapturowski et al. 2019): 256 environments.
# Another game: --game=Breakout. Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" atari r2d2 32 8 \
  --flagfile=seed_rl/atari/r2d2_paper.flags --game=Pong \
  --learner_machine=a2-highgpu-1g \
  --actor_machine=n2-standard-16 --evaluators=1 "$@"
