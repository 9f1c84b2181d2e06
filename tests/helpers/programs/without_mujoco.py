"""Creates a toy environment and one of MuJoCo, as if MuJoCo were not installed."""

import sys

sys.modules["mujoco"] = None  # type: ignore[assignment]

from seed_rl.mujoco.environment import MujocoConfig, create  # noqa: E402

create(0, MujocoConfig(env_name="Toy-v0"))
create(0, MujocoConfig())
