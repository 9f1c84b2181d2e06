#!/usr/bin/env bash
# PPO on MuJoCo with the configuration of the on-policy study (Andrychowicz et al. 2020).
# Another task: --env_name=Humanoid-v5. Options: gcp/submit.py --help
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/submit.py" mujoco ppo 4 32 \
  --gin_config=seed_rl/mujoco/gin/ppo.gin --env_name=HalfCheetah-v5 \
  --total_environment_frames=2000000 \
  --learner_machine=n2-standard-8 --actor_machine=n2-standard-4 "$@"
