#!/usr/bin/env bash
# The scenarios of docs/deployment/google_cloud.md, one line each:
#
#   gcp/scenario.sh NAME [--option=value ...]     e.g. gcp/scenario.sh train_atari --game=Breakout
#
# What follows NAME overrides the line; options: gcp/submit.py --help
set -euo pipefail

here="$(dirname "${BASH_SOURCE[0]}")"
name="${1:-}"
shift || true

gpu=--learner_machine=a2-highgpu-1g
gpus=--learner_machine=a2-highgpu-2g
cpus=--actor_machine=n2-standard-16
dmlab=(dmlab vtrace 150 1 "$gpu" "$cpus" --actors_per_machine=15)
football=(football vtrace 256 1 "$gpus" --actor_machine=n2-standard-32
  --game=11_vs_11_easy_stochastic)
mujoco=(mujoco ppo 4 32 --learner_machine=n2-standard-8 --actor_machine=n2-standard-4)

case "$name" in
  # R2D2 as published (Kapturowski et al. 2019): 256 environments.
  train_atari) set -- atari r2d2 32 8 --flagfile=seed_rl/atari/r2d2_paper.flags --game=Pong \
    "$gpu" "$cpus" --evaluators=1 "$@" ;;
  # V-trace as IMPALA's experts were trained (Espeholt et al. 2018, appendix G).
  train_atari_vtrace) set -- atari vtrace 32 8 --flagfile=seed_rl/atari/impala_paper.flags \
    --game=Pong "$gpu" "$cpus" "$@" ;;
  # All of DMLab-30 in one run (Espeholt et al. 2018, section 5.3). The actors' image needs the
  # engine and, for two levels, its images: --dataset_path=... there (docs/environments/dmlab.md).
  train_dmlab30) set -- "${dmlab[@]}" --flagfile=seed_rl/dmlab/impala_dmlab30.flags "$@" ;;
  # One level of DeepMind Lab, with the settings of the IMPALA paper.
  train_dmlab_*) set -- "${dmlab[@]}" --game="${name#train_dmlab_}" "$@" ;;
  # Football as published (Kurach et al. 2020): the program's defaults.
  train_football_scoring) set -- "${football[@]}" --reward_experiment=scoring \
    --name=football-vtrace-easy-scoring "$@" ;;
  train_football_checkpoints) set -- "${football[@]}" --reward_experiment=scoring,checkpoints \
    --name=football-vtrace-easy-checkpoints "$@" ;;
  # PPO with the configuration of the on-policy study (Andrychowicz et al. 2020).
  train_mujoco) set -- "${mujoco[@]}" --gin_config=seed_rl/mujoco/gin/ppo.gin \
    --env_name=HalfCheetah-v5 --total_environment_frames=2000000 "$@" ;;
  # Tunes learning rate and entropy cost over the ranges of Espeholt et al. 2018, appendix D, by the
  # mean return of training episodes. Another study: --study=FILE, a StudySpec as JSON.
  sweep_atari) set -- atari vtrace 16 8 --flagfile=seed_rl/atari/impala_paper.flags --game=Pong \
    --total_environment_frames=20000000 --name=sweep-atari-vtrace-Pong \
    --study="$here/studies/atari_vtrace.json" --trials=20 --parallel_trials=4 \
    --learner_machine=g2-standard-8 "$cpus" "$@" ;;
  *)
    echo "error: there is no scenario '$name'; choose from:" >&2
    sed -n 's/^  \([a-z].*\)) set .*/  \1/p' "$0" >&2
    exit 2
    ;;
esac
exec "$here/submit.py" "$@"
