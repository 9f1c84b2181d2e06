#!/usr/bin/env bash
# Tunes V-trace on one Atari game: learning rate and entropy cost over the ranges of the IMPALA
# paper (Espeholt et al. 2018, appendix D), by the mean return of training episodes.
# Another study: --study=FILE, a StudySpec as JSON. Options: gcp/submit.py --help
set -euo pipefail

here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/submit.py" atari vtrace 16 8 \
  --flagfile=seed_rl/atari/impala_paper.flags --game=Pong --total_environment_frames=20000000 \
  --name=sweep-atari-vtrace-Pong --study="$here/studies/atari_vtrace.json" \
  --trials=20 --parallel_trials=4 \
  --learner_machine=g2-standard-8 --actor_machine=n2-standard-16 "$@"
