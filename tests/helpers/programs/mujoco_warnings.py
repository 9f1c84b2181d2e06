"""Makes MuJoCo warn of a NaN in each of two environments; cart.xml is in the working directory."""

import mujoco

from seed_rl.mujoco.environment import MujocoConfig, create

for _ in range(2):
    env = create(0, MujocoConfig(env_name="InvertedPendulum-v5", xml_file="cart.xml"))
    env.reset()
    env.unwrapped.data.qpos[0] = float("nan")
    mujoco.mj_step(env.unwrapped.model, env.unwrapped.data)
