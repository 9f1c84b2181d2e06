"""EnvPool's environments, which it steps in native threads (no TensorFlow here).

--env=seed_rl.gym.envpool:make --env_kwargs='{"task_id": "CartPole-v1"}'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from seed_rl.common import nest
from seed_rl.common.errors import UserError

_NUM_SEEDS = 2**31


class EnvPool(VectorEnv[Any, Any, Any]):
    """A pool with the parts of Gymnasium's vector interface that EnvPool writes differently.

    The step after an episode's last one resets; a reset with ids only resets those environments.
    Seeds are set when a pool is created: without one, EnvPool's default makes all pools alike.
    """

    def __init__(self, create: Callable[..., Any], num_envs: int):
        """Creates a pool.

        Args:
          create: `create(seed=...)` returns a pool of `num_envs` environments.
          num_envs: their number.
        """
        self._create = create
        self._pool = create(seed=int(np.random.default_rng().integers(_NUM_SEEDS)))
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._pool.close()
            self._pool = self._create(seed=int(seed))
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return self._pool.reset()[0], {}
        rows = np.flatnonzero(mask).astype(np.int32)

        def spread(leaf: np.ndarray) -> np.ndarray:
            """The leaf for all environments; zeros for those that are not reset."""
            full = np.zeros((self.num_envs, *leaf.shape[1:]), leaf.dtype)
            full[rows] = leaf
            return full

        return nest.map_structure(spread, self._pool.reset(rows)[0]), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self._pool.step(actions)
        return observation, reward, terminated, truncated, {}

    def close(self, **kwargs: Any) -> None:
        self._pool.close()


def make(task_id: str, num_envs: int, num_threads: int = 1, **arguments: Any) -> EnvPool:
    """Environments of EnvPool.

    Args:
      task_id: EnvPool's name of the environment.
      num_envs: how many.
      num_threads: of the pool. Actors are processes, so one thread each, unless there are few.
      **arguments: of `envpool.make_gymnasium`.

    Raises:
      UserError: EnvPool is not installed or has no such environment.
    """
    try:
        import envpool
    except ImportError as error:
        raise UserError(f"EnvPool is missing: pip install envpool ({error})") from None
    if task_id not in envpool.list_all_envs():
        raise UserError(f"EnvPool has no environment {task_id}; envpool.list_all_envs() lists all.")

    def create(seed: int) -> Any:
        settings = {"num_threads": num_threads, "seed": seed, **arguments}
        return envpool.make_gymnasium(task_id, num_envs=num_envs, **settings)

    return EnvPool(create, num_envs)
