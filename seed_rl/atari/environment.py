"""Atari 2600 games, single or vectorized (no TensorFlow here).

Both variants preprocess as in the papers: an action lasts `num_action_repeats` frames; the
observation is the pixelwise maximum of the last two frames, grey and scaled to 84 x 84 unless
`grayscale` and `frame_size` say otherwise; an episode starts with a random number of no-ops and is
truncated after 108,000 frames. The actor sends one frame <uint8>[84, 84, 1] per step; the learner
stacks them. Rewards are unclipped score changes. With `episodic_life`, a lost life ends the
learner's episode but not the game.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from seed_rl.atari import games
from seed_rl.common.acting.env_wrappers import height_and_width
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.options import Checked, option
from seed_rl.common.system.extras import missing_extra


@dataclasses.dataclass(frozen=True)
class AtariConfig(Checked):
    """Atari: the environment."""

    game: str = option(
        "Pong", "Game, e.g. Pong or SpaceInvaders (or space_invaders, ALE/SpaceInvaders-v5)."
    )
    sticky_actions: bool = option(
        False,
        "Whether each frame repeats the previous frame's action with probability 0.25 "
        "(Machado et al. 2018).",
    )
    max_random_noops: int = option(
        30, "Maximum number of no-op frames at the start of an episode.", minimum=0
    )
    full_action_space: bool = option(
        True, "Whether to use all 18 actions or only the minimal set of the game."
    )
    max_episode_frames: int = option(
        108_000, "Frames after which an episode is truncated.", minimum=1
    )
    frame_size: tuple[int, ...] = option(
        (84,), "Height and width of a frame: 105,80, or 84 for both.", minimum=1
    )
    grayscale: bool = option(True, "Whether frames are greyscale instead of colour.")
    episodic_life: bool = option(
        False,
        "Whether losing a life ends the learner's episode, as in IMPALA. The game continues: "
        "reported returns and lengths, and evaluation, cover whole games.",
    )
    fire_reset: bool = option(
        False,
        "Whether the first action of each game and of each life is FIRE, whatever the agent "
        "chooses, if FIRE is one of the game's actions (it always is with full_action_space); as "
        "in the wrappers of Stable-Baselines3 and CleanRL.",
    )
    num_action_repeats: int = option(4, "Frames per action.", minimum=1, shared=True)
    vectorized: bool = option(
        True,
        "Whether an actor steps its environments with ALE's native vector environment. Off: one "
        "Python object each (slower; random no-ops and sticky actions differ).",
        neutral=True,
    )
    render_mode: str | None = option(
        None,
        "For single environments: human opens a window, rgb_array returns images.",
        choices=("human", "rgb_array"),
        neutral=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        games.rom_name(self.game, games.available())

    @property
    def repeat_probability(self) -> float:
        """With which a frame repeats the previous frame's action."""
        return 0.25 if self.sticky_actions else 0.0


def create_environment(task: int, config: AtariConfig) -> Any:
    """One game as a Gymnasium environment.

    Args:
      task: environment id; unused, as games already differ by their random no-ops.
      config: options.

    Returns:
      An `AtariPreprocessing` with observations <uint8>[height, width, 1 or 3].

    Raises:
      UserError: if ALE is not installed or has no such game.
    """
    del task
    rom = rom_name(config.game)
    import ale_py

    from seed_rl.atari import atari_preprocessing

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # Suppresses ALE's banner.
    game = ale_py.AtariEnv(
        rom,
        obs_type="ram",  # The cheapest: the preprocessing reads the screen itself.
        frameskip=1,
        repeat_action_probability=config.repeat_probability,
        full_action_space=config.full_action_space,
        render_mode=config.render_mode,
    )
    return atari_preprocessing.AtariPreprocessing(
        game,
        frame_skip=config.num_action_repeats,
        screen_size=height_and_width(config.frame_size),
        grayscale=config.grayscale,
        max_random_noops=config.max_random_noops,
        max_episode_frames=config.max_episode_frames,
        episodic_life=config.episodic_life,
        fire_reset=config.fire_reset,
    )


def create_batch(env_ids: Any, config: AtariConfig | None = None) -> Any:
    """An actor's games in ALE's native vector environment.

    Args:
      env_ids: <int32>[k] environment ids.
      config: options; None: the defaults.

    Returns:
      A `BatchedEnv`, or None if `vectorized` is off.

    Raises:
      UserError: if ALE is not installed or has no such game.
    """
    config = config or AtariConfig()
    if not config.vectorized:
        return None
    path = _rom_path(config.game)  # Without ALE, the next line would not say what to install.
    from seed_rl.atari import vector_env

    return vector_env.AtariVectorEnvironment(env_ids, path, config)


def rom_name(game: str) -> str:
    """ALE's name of a game in any spelling, e.g. `space_invaders` for `SpaceInvaders`.

    Raises:
      UserError: if ALE is not installed or has no such game; suggests similar names.
    """
    return games.rom_name(game, _roms().get_all_rom_ids())


def _rom_path(game: str) -> str:
    return str(_roms().get_rom_path(rom_name(game)))


def _roms() -> Any:
    try:
        from ale_py import roms
    except ImportError as error:
        raise missing_extra("atari", "Atari", error) from error
    return roms


FAMILY = EnvironmentFamily(
    AtariConfig, create_environment, create_batch, environment="game", images=True
)
