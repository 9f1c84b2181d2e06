"""Several agents in one world, as that many environments: one policy, trained by all of them.

./run_local.sh examples/multi_agent.py vtrace 2 8

The players of a world are neighbours in the batch of one actor, which steps them together:
`create_batch` returns the worlds of an actor as a vector environment with Gymnasium's interface.
ENVS_PER_ACTOR must be a multiple of --players.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.acting.vector_environment import VectorEnvironment
from seed_rl.common.config.options import UserError, option
from seed_rl.gym import agents

PLACES, TIME_LIMIT = 9, 20


@dataclasses.dataclass(frozen=True)
class MeetingConfig:
    """Meeting: the environment."""

    players: int = option(2, "Players in each world.", minimum=2)


class Meeting(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Players on a circle are rewarded when all are at one place, which ends the episode.

    Each sees where the others are, relative to itself. NEXT_STEP: the step after an episode's last
    resets. Players of a world begin and end together, so a mask of players is one of worlds.
    """

    def __init__(self, worlds: int, players: int):
        self.num_envs = worlds * players
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}
        self.single_observation_space = spaces.Box(0.0, 1.0, (players - 1, PLACES), np.float32)
        self.single_action_space = spaces.Discrete(3)  # Left, stay, right.
        self._places = np.zeros((worlds, players), np.int64)
        self._steps = np.zeros(worlds, np.int64)
        self._over = np.zeros(worlds, np.bool_)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self._begin(mask.reshape(self._places.shape)[:, 0])
        return self._observation(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        begun = self._over
        moved = (self._places + actions.reshape(self._places.shape) - 1) % PLACES
        self._places[~begun] = moved[~begun]
        self._steps += 1
        self._begin(begun)
        met = (self._places == self._places[:, :1]).all(axis=1) & ~begun
        late = (self._steps >= TIME_LIMIT) & ~met & ~begun
        self._over = met | late
        players = self._places.shape[1]
        terminated, truncated = np.repeat(met, players), np.repeat(late, players)
        return self._observation(), terminated.astype(np.float32), terminated, truncated, {}

    def _begin(self, worlds: np.ndarray) -> None:
        """Begins an episode in these worlds, at random places that are not all the same."""
        count, players = int(worlds.sum()), self._places.shape[1]
        places = self.np_random.integers(PLACES, size=(count, players))
        places[:, 1] = (places[:, 0] + self.np_random.integers(1, PLACES, size=count)) % PLACES
        self._places[worlds] = places
        self._steps[worlds] = 0
        self._over = self._over & ~worlds

    def _observation(self) -> np.ndarray:
        players = self._places.shape[1]
        others = [np.roll(self._places, -shift, axis=1) for shift in range(1, players)]
        relative = (np.stack(others, axis=-1) - self._places[..., np.newaxis]) % PLACES
        return np.eye(PLACES, dtype=np.float32)[relative.reshape(self.num_envs, players - 1)]


class WithStillPlayers(gymnasium.Env[np.ndarray, int]):
    """A world whose other players stay: for the spaces, and for `seed_rl.play`."""

    def __init__(self, players: int):
        self._world = Meeting(1, players)
        self.observation_space = self._world.single_observation_space
        self.action_space = self._world.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return self._world.reset(seed=seed)[0][0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        actions = np.ones(self._world.num_envs, np.int64)
        actions[0] = action
        observation, reward, terminated, truncated, _ = self._world.step(actions)
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}


def create_environment(task: int, config: MeetingConfig) -> WithStillPlayers:
    """One environment; `task` is its id."""
    del task
    return WithStillPlayers(config.players)


def create_batch(env_ids: Any, config: MeetingConfig) -> VectorEnvironment:
    """All players of an actor.

    Raises:
      UserError: their number does not make whole worlds.
    """
    worlds, rest = divmod(len(env_ids), config.players)
    if rest:
        raise UserError(
            f"An actor has {len(env_ids)} environments, which are not whole worlds of --players="
            f"{config.players}. Make ENVS_PER_ACTOR (--env_batch_size) a multiple of it."
        )
    return VectorEnvironment(Meeting(worlds, config.players), env_ids)


FAMILY = EnvironmentFamily(MeetingConfig, create_environment, create_batch)

if __name__ == "__main__":
    agents.main(FAMILY)
