"""The standard preprocessing of Atari games (no TensorFlow here)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.system.extras import missing_extra


class AtariPreprocessing(gymnasium.Env[np.ndarray, int]):
    """Frame skip with a maximum over two frames, small grey frames, random no-ops.

    See Mnih et al. 2015. Observations are <uint8>[height, width, 1], or 3 channels in colour;
    rewards are summed over the frames of an action.
    """

    def __init__(
        self,
        environment: Any,
        frame_skip: int = 4,
        terminal_on_life_loss: bool = False,
        screen_size: int | tuple[int, int] = 84,
        max_random_noops: int = 0,
        max_episode_frames: int | None = None,
        episodic_life: bool = False,
        grayscale: bool = True,
        fire_reset: bool = False,
    ):
        """Wraps a game.

        Args:
          environment: `ale_py.AtariEnv` with frameskip=1, or wrappers around one.
          frame_skip: frames per action, at least 1.
          terminal_on_life_loss: whether losing a life terminates the episode; the next is a new
            game.
          screen_size: height and width of an observation in pixels, or one number for both.
          max_random_noops: an episode starts with up to this many no-op frames.
          max_episode_frames: frames (excluding no-ops) after which the episode is truncated, at the
            end of an action.
          episodic_life: whether losing a life (except the last) ends the learner's episode while
            the game continues; `info["learning_episode_over"]` is then true.
          grayscale: whether observations are grey instead of in colour.
          fire_reset: whether the first action of each game and life is FIRE, if the game has it.

        Raises:
          ValueError: if frame_skip or screen_size is not positive.
        """
        height, width = (screen_size,) * 2 if isinstance(screen_size, int) else screen_size
        if min(frame_skip, height, width) < 1:
            raise ValueError("frame_skip and screen_size must be at least 1.")
        self.environment = environment
        self.frame_skip = frame_skip
        self.terminal_on_life_loss = terminal_on_life_loss
        self.screen_size = screen_size
        self._shape = (height, width, 1 if grayscale else 3)
        self.max_random_noops = max_random_noops
        self.max_episode_frames = max_episode_frames
        self.episodic_life = episodic_life
        self.game_over = False
        self.lives = 0
        meanings = environment.unwrapped.get_action_meanings() if fire_reset else []
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._life_begins = True
        self._ale = environment.unwrapped.ale
        self._frames = 0
        screen = (*self._ale.getScreenDims(), *(() if grayscale else (3,)))
        self._get_screen = self._ale.getScreenGrayscale if grayscale else self._ale.getScreenRGB
        # The last two frames of an action, for the maximum.
        self._screens = [np.zeros(screen, np.uint8) for _ in range(2)]

    @property
    def observation_space(self) -> spaces.Box:  # type: ignore[override]
        return spaces.Box(0, 255, self._shape, np.uint8)

    @property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        return self.environment.action_space

    @property
    def reward_range(self) -> tuple[float, float]:
        return getattr(self.environment, "reward_range", (-float("inf"), float("inf")))

    @property
    def metadata(self) -> dict[str, Any]:  # type: ignore[override]
        # The console runs at 60 frames per second.
        return {**self.environment.metadata, "render_fps": 60 / self.frame_skip}

    def close(self) -> None:
        self.environment.close()

    def render(self, mode: str | None = None) -> Any:
        """Renders the game according to its `render_mode`; `mode` is ignored."""
        del mode
        return self.environment.render()

    def apply_random_noops(self) -> None:
        """Takes 0 to `max_random_noops` no-op steps."""
        for _ in range(int(self.np_random.integers(self.max_random_noops + 1))):
            _, _, terminated, truncated, _ = self.environment.step(0)
            if terminated or truncated:
                self.environment.reset()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        _, info = self.environment.reset(seed=seed, options=options)
        self.apply_random_noops()
        self.lives = self._ale.lives()
        self.game_over = False
        self._life_begins = True
        self._frames = 0
        self._grab(0)
        self._screens[1].fill(0)
        return self._observation(), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        total = 0.0
        terminated = truncated = False
        info: dict[str, Any] = {}
        lives_before = self.lives
        if self._life_begins and self._fire is not None:
            action = self._fire
        for left in reversed(range(self.frame_skip)):
            _, reward, terminated, truncated, info = self.environment.step(action)
            total += float(reward)
            self._frames += 1
            if self.terminal_on_life_loss:
                terminated = terminated or self._ale.lives() < lives_before
            if left < 2:
                self._grab(left)
            if terminated or truncated:
                break
        if self.max_episode_frames is not None and self._frames >= self.max_episode_frames:
            truncated = not terminated
        self.lives = self._ale.lives()
        # Some games show zero lives for a few frames before they are over.
        self._life_begins = not terminated and 0 < self.lives < lives_before
        if self.episodic_life and not terminated:
            info["learning_episode_over"] = self._life_begins
        self.game_over = terminated
        return self._observation(), total, terminated, truncated, info

    def _grab(self, index: int) -> None:
        self._get_screen(self._screens[index])

    def _observation(self) -> np.ndarray:
        # Imported here: OpenCV is large, and the native vector environment does not need it.
        try:
            import cv2
        except ImportError as error:
            raise missing_extra("atari", "A single Atari environment", error) from error

        if self.frame_skip > 1:
            np.maximum(self._screens[0], self._screens[1], out=self._screens[0])
        size = (self._shape[1], self._shape[0])
        frame = cv2.resize(self._screens[0], size, interpolation=cv2.INTER_AREA)
        return frame.reshape(self._shape)
