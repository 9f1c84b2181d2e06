"""ALE's native vector environment as a `BatchedEnv` (no TensorFlow here)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ale_py
import numpy as np
from gymnasium import spaces

from seed_rl.common.acting.batched_env import BatchStep, EnvironmentFailure, env_seeds
from seed_rl.common.acting.env_wrappers import height_and_width
from seed_rl.common.acting.spaces import action_splitter

if TYPE_CHECKING:
    from seed_rl.atari.environment import AtariConfig  # Imports this module.


class AtariVectorEnvironment:
    """k copies of one game, stepped and preprocessed by one native thread.

    Finished games are reset within the same step by a second call, a partial reset. The native
    environment cannot exclude a truncated game from the next step, so that game plays one more,
    unseen action before its reset. We do not use the native frame limit: it would mix a truncated
    game's last frame, from which learners bootstrap, with older ones. Nor do we use the native
    `episodic_life`, which resets the game, or `life_loss_info`, which does not distinguish a lost
    life from the end of the game.
    """

    def __init__(self, env_ids: Any, rom_path: str, config: AtariConfig):
        """Creates the games."""
        self.env_ids = np.asarray(env_ids, np.int32)
        size = len(self.env_ids)
        height, width = height_and_width(config.frame_size)
        self._ale = ale_py.ALEVectorInterface(
            rom_path=rom_path,
            num_envs=size,
            frame_skip=config.num_action_repeats,
            stack_num=1,
            img_height=height,
            img_width=width,
            grayscale=config.grayscale,
            maxpool=True,
            # ALE samples from [0, noop_max), other implementations from [0, max_random_noops].
            noop_max=config.max_random_noops + 1,
            use_fire_reset=False,  # It only covers new games, not lives.
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            max_episode_steps=2**31 - 1,
            repeat_action_probability=config.repeat_probability,
            full_action_space=config.full_action_space,
            num_threads=1,
            autoreset_mode="NextStep",
        )
        # ALE seeds sticky actions with the time in seconds, so games started together would behave
        # alike. No-ops are seeded better, so skip seeding (which reloads the game) without sticky
        # actions.
        self._must_seed = config.sticky_actions
        self._max_episode_steps = -(-config.max_episode_frames // config.num_action_repeats)
        self._shape = (size, height, width, 1 if config.grayscale else 3)
        self.observation_space = spaces.Box(0, 255, self._shape[1:], np.uint8)
        legal = self._ale.get_action_set()
        self.action_space = spaces.Discrete(len(legal))
        self._split_actions = action_splitter(self.action_space, size)
        self._full_strength = [1.0] * size
        self._truncated = np.zeros(size, np.bool_)
        self._episode_step = np.zeros(size, np.int32)
        self._episodic_life = config.episodic_life
        fires = config.fire_reset and ale_py.Action.FIRE in legal
        self._fire = legal.index(ale_py.Action.FIRE) if fires else None
        self._life_begins = np.ones(size, np.bool_)
        self._lives = np.zeros(size, np.int32)

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Starts a new episode in every game.

        Args:
          seed: each game gets a different seed derived from it; None: games are not reseeded.

        Returns:
          Observations <uint8>[k, height, width, 1 or 3].
        """
        if seed is None and self._must_seed:
            seed = int.from_bytes(os.urandom(4), "little")
        self._must_seed = False
        seeds = [-1 if s is None else s for s in env_seeds(seed, self.env_ids)]
        self._truncated.fill(False)
        self._life_begins.fill(True)
        self._episode_step.fill(0)
        return self._reset_rows(list(range(len(seeds))), seeds)

    def step(self, action_batch: Any) -> BatchStep:
        """Applies one action per game, <int32 or int64>[k].

        Raises:
          EnvironmentFailure: if ALE raises.
          UserError: if an action is outside the action space.
        """
        # Checked here because an invalid action kills the native thread, which then never answers.
        actions = self._split_actions(action_batch)
        if self._fire is not None:
            actions = np.where(self._life_begins, self._fire, actions).tolist()
        try:
            self._ale.send(actions, self._full_strength)
            frames, rewards, terminated, _, info = self._ale.recv()
        except Exception as error:
            raise EnvironmentFailure(f"ALE raised in a step of {self.env_ids}.") from error
        abandoned = self._truncated
        done = terminated | abandoned
        lives = info["lives"]
        # Some games show zero lives for a few frames before they are over.
        life_lost = ~done & (0 < lives) & (lives < self._lives)
        self._lives[:] = lives
        self._life_begins = done | life_lost
        self._episode_step += 1
        self._truncated = ~done & (self._episode_step >= self._max_episode_steps)
        reward = rewards.astype(np.float32)
        if done.any():
            self._episode_step[done] = 0
            reward[abandoned] = 0.0
            rows = np.flatnonzero(done).tolist()
            frames = self._reset_rows(rows, [-1] * len(rows))
        if self._episodic_life:
            done |= life_lost
        return BatchStep(
            frames.reshape(self._shape), reward, done, abandoned, self._episode_step, reward
        )

    def close(self) -> None:
        """Stops the native thread."""
        self._ale = None

    def _reset_rows(self, rows: list[int], seeds: list[int]) -> np.ndarray:
        try:
            frames, info = self._ale.reset(rows, seeds)
        except Exception as error:
            raise EnvironmentFailure(f"ALE raised in a reset of {self.env_ids}.") from error
        self._lives[:] = info["lives"]
        return frames.reshape(self._shape)
