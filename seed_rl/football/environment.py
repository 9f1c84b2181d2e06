"""Google Research Football (Kurach et al. 2020), on either of two engines (no TensorFlow here).

An observation is the "super minimap" (SMM): planes that mark the left team, the right team, the
ball and the controlled player, for the last four steps. Each pixel's 16 planes travel as the bits
of one <uint16>; the network unpacks them (`seed_rl.football.observation`). The agent chooses one of
the default set's 19 actions for the controlled player of the left team.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import gymnasium

from seed_rl.common.acting.env_wrappers import RepeatActions
from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError
from seed_rl.football import envpool_env, gfootball_env
from seed_rl.football.observation import PackedBitsObservation

AUTO, ENVPOOL, GFOOTBALL = "auto", "envpool", "gfootball"
SCORING, CHECKPOINTS = "scoring", "scoring,checkpoints"
STACK_SIZE = 4

SMM_SIZES = {"default": (72, 96), "medium": (90, 120), "large": (108, 144)}
"""Height and width of the minimap."""

_BUILD = "scripts/build_gfootball.sh"


@dataclasses.dataclass(frozen=True)
class FootballConfig(Checked):
    """Google Research Football: the environment."""

    game: str = option(
        "11_vs_11_easy_stochastic",
        "Scenario, e.g. 11_vs_11_hard_stochastic or academy_empty_goal_close.",
    )
    smm_size: str = option(
        "default",
        "Height and width of the minimap: default 72 x 96, medium 90 x 120, large 108 x 144.",
        choices=tuple(SMM_SIZES),
    )
    reward_experiment: str = option(
        SCORING,
        "Rewards: +1 and -1 for goals (scoring), or also 0.1 for each of ten checkpoints on the "
        "ball's way to the opponent's goal (scoring,checkpoints).",
        choices=(SCORING, CHECKPOINTS),
    )
    engine: str = option(
        AUTO,
        "envpool, which pip installs; gfootball, which is compiled and supports every option; "
        "auto: envpool for whatever it supports.",
        choices=(AUTO, ENVPOOL, GFOOTBALL),
    )
    num_action_repeats: int = option(
        1, "Frames per action, whose rewards are summed.", minimum=1, shared=True
    )
    render_mode: str | None = option(
        None,
        "rgb_array: render() returns a picture of the minimap.",
        choices=("rgb_array",),
        neutral=True,
    )


def create_environment(task_id: int, config: FootballConfig) -> gymnasium.Env[Any, Any]:
    """One game.

    Args:
      task_id: environment id; unused, as games already differ by their random seeds.
      config: options.

    Returns:
      An environment with observations <uint16>[height, width, 1] and 19 actions. The episode
      terminates where the scenario ends, also at its time limit: a game is over then. Rewards of
      goals alone are `info["score_reward"]`.

    Raises:
      UserError: the engine is not installed, or has no such scenario or option.
    """
    del task_id
    game: gymnasium.Env[Any, Any]
    if choose_engine(config) == ENVPOOL:
        _check_scenario(config, envpool_env.scenarios(), ENVPOOL)
        game = envpool_env.EnvpoolGame(config.game)
    else:
        purpose = _beyond_envpool(config) or f"--engine={GFOOTBALL}"
        _check_scenario(config, gfootball_env.scenarios(purpose), GFOOTBALL)
        size = SMM_SIZES[config.smm_size]
        game = gfootball_env.GfootballGame(config.game, config.reward_experiment, size)
    if config.num_action_repeats > 1:
        game = RepeatActions(game, config.num_action_repeats)
    return PackedBitsObservation(game, STACK_SIZE, config.render_mode)


def choose_engine(config: FootballConfig) -> str:
    """The engine to use, `ENVPOOL` or `GFOOTBALL`; it may not be installed.

    Raises:
      UserError: the engine that `config` names does not support one of its other options.
    """
    beyond_envpool = _beyond_envpool(config)
    if config.engine == ENVPOOL and beyond_envpool:
        raise UserError(
            f"The engine envpool does not support {beyond_envpool}; the engine gfootball does. "
            f"Build it with {_BUILD} and use --engine={GFOOTBALL}."
        )
    if config.engine != AUTO:
        return config.engine
    if beyond_envpool or (gfootball_env.is_installed() and not envpool_env.is_installed()):
        return GFOOTBALL
    return ENVPOOL


def _beyond_envpool(config: FootballConfig) -> str:
    """The first option that only gfootball supports, as a flag; "" if none.

    Scenarios do not count: an unknown one is more likely misspelled than the user's own.
    """
    for name in ("reward_experiment", "smm_size"):
        value = getattr(config, name)
        if value != getattr(FootballConfig, name):
            return f"--{name}={value}"
    return ""


def _check_scenario(config: FootballConfig, known: tuple[str, ...], engine: str) -> None:
    if config.game in known:
        return
    close = difflib.get_close_matches(config.game.lower(), known, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Choose from {', '.join(known)}."
    own = " Scenarios of your own need --engine=gfootball." if engine == ENVPOOL else ""
    raise UserError(f"The engine {engine} has no scenario '{config.game}'. {hint}{own}")
