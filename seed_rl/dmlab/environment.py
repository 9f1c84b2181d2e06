"""DeepMind Lab as a Gymnasium environment (no TensorFlow here).

As in the IMPALA paper (Espeholt et al. 2018): observations are RGB frames of 72 x 96 pixels, there
are nine actions, and an action lasts four frames. Rewards are those of the level; the learner clips
them. The engine is needed to reset an environment, but not to create one: learners do without.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from absl import logging
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from seed_rl.common.config.options import Checked, option, option_of
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.dmlab import games, instructions
from seed_rl.dmlab.level_cache import LevelCache

__all__ = [
    "DEFAULT_ACTION_SET",
    "DmLab",
    "DmlabConfig",
    "LevelCache",
    "create_environment",
]

BUILD = "https://github.com/google-deepmind/lab/blob/master/python/pip_package/README.md"

DEFAULT_ACTION_SET = (
    (0, 0, 0, 1, 0, 0, 0),  # Forward.
    (0, 0, 0, -1, 0, 0, 0),  # Backward.
    (0, 0, -1, 0, 0, 0, 0),  # Strafe left.
    (0, 0, 1, 0, 0, 0, 0),  # Strafe right.
    (-20, 0, 0, 0, 0, 0, 0),  # Look left.
    (20, 0, 0, 0, 0, 0, 0),  # Look right.
    (-20, 0, 0, 1, 0, 0, 0),  # Forward, look left.
    (20, 0, 0, 1, 0, 0, 0),  # Forward, look right.
    (0, 0, 0, 0, 1, 0, 0),  # Fire.
)
"""The actions of the paper: pixels to look right and down, strafe, move, fire, jump, crouch."""

FRAME, INSTRUCTION = "RGB_INTERLEAVED", "INSTR"
"""The engine's names of observations, and our names where there are both."""

_HEIGHT, _WIDTH = 72, 96
_FPS = 60
_MAX_SEED = 2**31 - 1
# Tests combine seeds with this number, training with the engine's default, 0, so that procedural
# levels of tests never occur in training. The value is that of the paper's published evaluation.
_TEST_MIXER_SEED = 0x600D5EED
_HOLD_OUT = "allowHoldOutLevels"


@dataclasses.dataclass(frozen=True)
class DmlabConfig(Checked):
    """DeepMind Lab: the environment."""

    game: str = option(
        "explore_goal_locations_small",
        "Level, such as lasertag_one_opponent_small; several, separated by commas; or dmlab30: "
        "all of DMLab-30. With several, each environment plays one, chosen by its id.",
    )
    width: int = option(_WIDTH, "Width of the frames in pixels, a multiple of 4.", minimum=4)
    height: int = option(_HEIGHT, "Height of the frames in pixels, a multiple of 4.", minimum=4)
    num_action_repeats: int = option(4, "Frames per action.", minimum=1, shared=True)
    instructions: bool | None = option(
        None,
        "Whether observations include the level's instructions. Default: whether a level of "
        "--game gives any.",
    )
    instruction_words: int = option(
        16, "Words of an instruction that the agent reads; the rest is cut off.", minimum=1
    )
    renderer: str = option(
        "software",
        "Renderer of the engine: software (Mesa), or hardware (EGL on a GPU).",
        choices=("software", "hardware"),
        neutral=True,
    )
    level_cache_dir: str | None = option(
        None,
        "Cache of compiled levels, shared by all actors: a directory, or a URL of any file system "
        "that fsspec knows (gs://bucket/levels). Default: none; levels are compiled each time.",
        neutral=True,
    )
    homepath: str | None = option(
        None, "Directory of the engine's files, if it does not find them itself.", neutral=True
    )
    dataset_path: str | None = option(
        None,
        "Directory of the images that two psychlab levels show; see docs/environments/dmlab.md.",
        neutral=True,
    )
    render_mode: str | None = option(
        None,
        "What `seed_rl.play` records: rgb_array, the frames that the agent sees. The engine opens "
        "no window.",
        choices=("rgb_array",),
        neutral=True,
    )
    num_envs: int = option_of(RunConfig, "num_envs", shared=True, neutral=True)
    num_eval_envs: int = option_of(RunConfig, "num_eval_envs", shared=True, neutral=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        games.choose(self.game)
        for name in ("width", "height"):
            if getattr(self, name) % 4:
                raise UserError(
                    f"--{name}={getattr(self, name)}: DeepMind Lab renders multiples of 4 only."
                )

    @property
    def levels(self) -> tuple[str, ...]:
        """The training levels of `game`."""
        return games.choose(self.game)

    @property
    def num_training_envs(self) -> int:
        """Environments that are not for evaluation."""
        return self.num_envs - self.num_eval_envs

    def reads_instructions(self) -> bool:
        """Whether observations include instructions."""
        if self.instructions is None:
            return any(games.gives_instructions(level) for level in self.levels)
        return self.instructions

    def is_evaluation(self, env_id: int) -> bool:
        """Whether an environment is for evaluation.

        Never without `num_eval_envs`, even if there are more environments than `num_envs` says:
        nothing must be trained on what is held out for tests.
        """
        return self.num_eval_envs > 0 and env_id >= self.num_training_envs

    def level_of(self, env_id: int) -> str:
        """The level of an environment; evaluation environments have their own rotation."""
        place = env_id - self.num_training_envs if self.is_evaluation(env_id) else env_id
        level = self.levels[place % len(self.levels)]
        return games.level_for_tests(level) if self.is_evaluation(env_id) else level

    def task_of(self, env_id: int) -> str | None:
        """See `environment_family.Tasks`."""
        return self.level_of(env_id)

    def task_score(self, task: str, mean_return: float) -> float | None:
        """See `environment_family.Tasks`: human-normalized, at most 100; None outside DMLab-30."""
        if not games.is_scored(task):
            return None
        return games.capped_human_normalized_score({task: mean_return})


def create_environment(task: int, config: DmlabConfig) -> DmLab:
    """The level of an environment.

    Args:
      task: environment id, which chooses the level, and whether it is one of training or tests.
      config: options.

    Raises:
      UserError: there is no such level, or another option is not valid.
    """
    if task == 0 and 0 < config.num_training_envs < len(config.levels):
        logging.warning(
            "%d training environments cannot play all %d levels of --game=%s: raise --num_envs.",
            config.num_training_envs,
            len(config.levels),
            config.game,
        )
    settings = {"width": config.width, "height": config.height, "logLevel": "ERROR"}
    if config.dataset_path:
        settings["datasetPath"] = config.dataset_path
    return DmLab(
        config.level_of(task),
        config.num_action_repeats,
        None,  # Seeded by the system: different for each environment. `reset` may reseed it.
        config.is_evaluation(task),
        settings,
        level_cache_dir=config.level_cache_dir,
        renderer=config.renderer,
        homepath=config.homepath,
        instruction_words=config.instruction_words if config.reads_instructions() else 0,
    )


class DmLab(gymnasium.Env[Any, Any]):
    """A level of DeepMind Lab.

    Observations are frames <uint8>[height, width, 3], or with instructions a dictionary of these
    and hashed words <int32>[instruction_words], see `instructions.encode`.

    The engine shows nothing after the end of an episode, so the last observation is repeated then.
    All episodes terminate: most by a time limit, but it is part of the task, and values beyond it
    could not be learned from a frame that does not exist.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": _FPS}

    def __init__(
        self,
        game: str,
        num_action_repeats: int,
        seed: int | None,
        is_test: bool,
        config: Mapping[str, Any] | None,
        action_set: Sequence[Sequence[int]] = DEFAULT_ACTION_SET,
        level_cache_dir: str | None = None,
        *,
        renderer: str = "software",
        homepath: str | None = None,
        instruction_words: int = 0,
    ):
        """Prepares a level; the first reset loads it.

        Args:
          game: level; those of DMLab-30 need no folder.
          num_action_repeats: frames per action.
          seed: determines all episodes, unless `reset` gets another; None: different each time.
          is_test: whether to use what is held out from training: levels with held-out parts, and
            the seeds of tests.
          config: settings of the engine and the level, with any values.
          action_set: the engine's action of each choice; missing columns are 0.
          level_cache_dir: see `LevelCache`; None: no cache.
          renderer: "software" or "hardware".
          homepath: directory of the engine's files; None: the engine knows.
          instruction_words: number of words of the instructions to observe; 0: none.

        Raises:
          UserError: a level is only for tests, and neither `is_test` nor `config` allows it.
        """
        settings: dict[str, Any] = {"width": _WIDTH, "height": _HEIGHT, **(config or {})}
        if is_test:
            settings |= {_HOLD_OUT: "true", "mixerSeed": _TEST_MIXER_SEED}
        self._game = game.removeprefix(games.FOLDER)
        if _HOLD_OUT not in settings:
            games.check_training(self._game)
        self._settings = {name: _text(value) for name, value in settings.items()}
        self._num_action_repeats = num_action_repeats
        self.metadata = {**self.metadata, "render_fps": _FPS / num_action_repeats}
        self._seed = seed
        self._action_set = action_set
        self._level_cache_dir = level_cache_dir
        self._renderer = renderer
        self._homepath = homepath
        self._instruction_words = instruction_words
        self._lab: Any = None
        self._closed = False
        self._episode = 0
        self._actions: list[np.ndarray] = []
        self._observation: Any = None
        self._instruction = ("", instructions.encode("", instruction_words))
        frame = spaces.Box(0, 255, (int(settings["height"]), int(settings["width"]), 3), np.uint8)
        words = spaces.Box(0, instructions.NUM_BUCKETS, (instruction_words,), np.int32)
        self.observation_space = (
            spaces.Dict({FRAME: frame, INSTRUCTION: words}) if instruction_words else frame
        )
        self.action_space = spaces.Discrete(len(action_set))
        self.render_mode = "rgb_array"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Args:
          seed: determines this episode and those after it.
          options: not used.

        Raises:
          UserError: the engine is not installed, or cannot load the level.
        """
        if self._closed:  # The engine would crash.
            raise ClosedEnvironmentError("This environment was closed; create another.")
        seed, self._seed = self._seed if seed is None else seed, None
        super().reset(seed=seed)
        loaded = self._lab is not None
        if not loaded:
            self._load()
        if seed is not None:
            self._episode = 0
        episode_seed = int(self.np_random.integers(_MAX_SEED))  # The engine takes no NumPy integer.
        try:
            if seed is not None and not loaded:
                # The engine's very first episode differs from later ones of the same seed.
                self._lab.reset(episode=self._episode, seed=episode_seed)
            self._lab.reset(episode=self._episode, seed=episode_seed)
        except RuntimeError as error:
            if loaded:
                raise
            raise self._explained(error) from error
        self._episode += 1
        self._observe()
        return self._observation, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeats an action; rewards of its frames are summed."""
        if self._lab is None or not self._lab.is_running():
            raise ResetNeeded("The episode has ended or has not begun; call reset.")
        reward = float(self._lab.step(self._actions[action], num_steps=self._num_action_repeats))
        terminated = not self._lab.is_running()
        if not terminated:
            self._observe()
        return self._observation, reward, terminated, False, {}

    def render(self) -> Any:
        """The last frame, <uint8>[height, width, 3]; None before the first reset."""
        if isinstance(self._observation, dict):
            return self._observation[FRAME]
        return self._observation

    def close(self) -> None:
        """Closes the engine; it cannot be reset afterwards."""
        self._closed = True
        lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()

    def _load(self) -> None:
        engine = _engine(self._homepath)
        cache = LevelCache(self._level_cache_dir) if self._level_cache_dir else None
        names = [FRAME, INSTRUCTION] if self._instruction_words else [FRAME]
        try:
            self._lab = engine.Lab(
                games.engine_name(self._game),
                names,
                config=self._settings,
                renderer=self._renderer,
                level_cache=cache,
            )
        except RuntimeError as error:
            raise self._explained(error) from error
        size = len(self._lab.action_spec())
        if any(len(action) > size for action in self._action_set):
            raise UserError(f"Actions of {self._game} have {size} columns, not more.")
        # One array each: the engine ignores strides, so rows of a matrix will not do in general.
        self._actions = [np.zeros(size, np.intc) for _ in self._action_set]
        for array, action in zip(self._actions, self._action_set, strict=True):
            array[: len(action)] = action

    def _observe(self) -> None:
        observations = self._lab.observations()
        frame = observations[FRAME]
        if not self._instruction_words:
            self._observation = frame
            return
        text = observations[INSTRUCTION]
        if text != self._instruction[0]:
            self._instruction = (text, instructions.encode(text, self._instruction_words))
        self._observation = {FRAME: frame, INSTRUCTION: self._instruction[1]}

    def _explained(self, error: RuntimeError) -> UserError:
        names = games.nearest(self._game)
        similar = f" Similar levels: {', '.join(names)}." if names else ""
        known = self._game in names
        data = (
            " Two psychlab levels need images: see --dataset_path."
            if self._game.startswith("psychlab")
            else ""
        )
        return UserError(
            f"DeepMind Lab cannot load the level '{self._game}': {str(error).strip()}"
            f"{data}{'' if known else similar}"
        )


def _engine(homepath: str | None) -> Any:
    """The module `deepmind_lab`."""
    try:
        import deepmind_lab
    except ImportError as error:
        raise UserError(
            f"DeepMind Lab is not installed for {sys.executable} ({error}). It is in no package "
            f"index: build its wheel as {BUILD} describes and install it with pip, or use "
            "docker/Dockerfile.dmlab."
        ) from error
    if homepath:
        deepmind_lab.set_runfiles_path(homepath)
    return deepmind_lab


def _text(value: Any) -> str:
    """A setting as the engine takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
