"""Levels of DeepMind Lab, and the scores of DMLab-30 (no TensorFlow here)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seed_rl.common.errors import UserError

DMLAB30 = "dmlab30"
"""Name for all levels of DMLab-30."""

FOLDER = "contributed/dmlab30/"
"""Where the engine keeps the levels of DMLab-30."""

_CAP = 100.0  # Percent: one easy level must not make up for others.
_ALIKE = 0.75  # Names at least this similar to a level of DMLab-30 are taken for misspelled.
_LANGUAGE = "language_"


class Level(NamedTuple):
    """A level of DMLab-30.

    Attributes:
      train: its name in training.
      test: its name in tests; another level where the tests contain what training held out.
      human: mean return of human episodes on the test level.
      random: the same for a policy that chooses actions at random.
    """

    train: str
    test: str
    human: float
    random: float


def _level(name: str, human: float, random: float) -> Level:
    return Level(name, name, human, random)


# Order and names: github.com/google-deepmind/lab, game_scripts/levels/contributed/dmlab30. Scores:
# those published with the code of Espeholt et al. 2018, which are those of the paper's table of
# DMLab-30 with more digits. The lasertag levels differ: the table has the scores of "small" under
# "large" and vice versa. We follow the code, as later work does.
LEVELS = (
    Level("rooms_collect_good_objects_train", "rooms_collect_good_objects_test", 10.0, 0.073),
    Level(
        "rooms_exploit_deferred_effects_train", "rooms_exploit_deferred_effects_test", 85.65, 8.501
    ),
    _level("rooms_select_nonmatching_object", 65.9, 0.312),
    _level("rooms_watermaze", 54.0, 4.065),
    _level("rooms_keys_doors_puzzle", 53.8, 4.135),
    _level("language_select_described_object", 389.5, -0.07),
    _level("language_select_located_object", 280.7, 1.929),
    _level("language_execute_random_task", 254.05, -5.913),
    _level("language_answer_quantitative_question", 184.5, -0.33),
    _level("lasertag_one_opponent_small", 12.65, -0.224),
    _level("lasertag_three_opponents_small", 18.55, -0.214),
    _level("lasertag_one_opponent_large", 18.6, -0.083),
    _level("lasertag_three_opponents_large", 31.5, -0.102),
    _level("natlab_fixed_large_map", 36.9, 2.173),
    _level("natlab_varying_map_regrowth", 24.45, 2.989),
    _level("natlab_varying_map_randomized", 42.35, 7.346),
    _level("skymaze_irreversible_path_hard", 100.0, 0.1),
    _level("skymaze_irreversible_path_varied", 100.0, 14.4),
    _level("psychlab_arbitrary_visuomotor_mapping", 58.75, 0.163),
    _level("psychlab_continuous_recognition", 58.3, 0.224),
    _level("psychlab_sequential_comparison", 39.5, 0.129),
    _level("psychlab_visual_search", 78.5, 0.085),
    _level("explore_object_locations_small", 74.45, 3.575),
    _level("explore_object_locations_large", 65.65, 4.673),
    _level("explore_obstructed_goals_small", 206.0, 6.76),
    _level("explore_obstructed_goals_large", 119.5, 2.61),
    _level("explore_goal_locations_small", 267.5, 7.66),
    _level("explore_goal_locations_large", 194.5, 3.14),
    _level("explore_object_rewards_few", 77.7, 2.073),
    _level("explore_object_rewards_many", 106.7, 2.438),
)
"""DMLab-30."""

# The same as tables, under the names that existing programs use.
LEVEL_MAPPING = {level.train: level.test for level in LEVELS}
ALL_LEVELS = frozenset(LEVEL_MAPPING.values())
HUMAN_SCORES = {level.test: level.human for level in LEVELS}
RANDOM_SCORES = {level.test: level.random for level in LEVELS}

_BY_NAME = {name: level for level in LEVELS for name in (level.test, level.train)}


def choose(names: str) -> tuple[str, ...]:
    """The training levels named by a comma-separated list.

    Args:
      names: levels, or `dmlab30` for all of DMLab-30. Levels of DMLab-30 need no folder; others are
        named as the engine names them (`lt_chasm`, `tests/empty_room_test`).

    Returns:
      Names, those of DMLab-30 without folder.

    Raises:
      UserError: nothing is named, a name is almost that of a level of DMLab-30, or a level is only
        for tests.
    """
    levels: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name.lower().replace("-", "").replace("_", "") == DMLAB30:
            levels += [level.train for level in LEVELS]
        else:
            levels.append(_checked(name))
            check_training(levels[-1])
    if not levels:
        raise UserError(
            f"--game is empty. Name a level, such as {LEVELS[-4].train}, or {DMLAB30} for all "
            "levels of DMLab-30."
        )
    return tuple(levels)


def check_training(name: str) -> None:
    """Checks that agents may be trained on a level.

    Args:
      name: of DMLab-30 without folder, or another.

    Raises:
      UserError: its content is held out from training. The engine would raise an error of Lua.
    """
    level = _BY_NAME.get(name)
    if level is not None and name != level.train:
        raise UserError(
            f"'{name}' is a level for tests, which is never trained on. Train with "
            f"--game={level.train}: with --num_eval_envs=1, the run's last environment plays the "
            "level for tests; so does `seed-rl play LOGDIR --num_eval_envs=1` afterwards."
        )


def level_for_tests(name: str) -> str:
    """The level on which agents trained on `name` are tested, often `name` itself."""
    level = _BY_NAME.get(name)
    return level.test if level else name


def engine_name(name: str) -> str:
    """The name by which the engine finds a level."""
    return f"{FOLDER}{name}" if name in _BY_NAME else name


def gives_instructions(name: str) -> bool:
    """Whether a level has instructions in words."""
    return name in _BY_NAME and name.startswith(_LANGUAGE)


def is_scored(name: str) -> bool:
    """Whether the scores of humans and of the random policy are known."""
    return name in _BY_NAME


def nearest(name: str, cutoff: float = 0.5) -> list[str]:
    """The names of up to three levels of DMLab-30 that are most similar to `name`."""
    return difflib.get_close_matches(name.removeprefix(FOLDER), _BY_NAME, n=3, cutoff=cutoff)


def human_normalized_score(game: str, returns: float | Sequence[float] | np.ndarray) -> float:
    """Score in percent: 0 for the random policy, 100 for a human, not capped.

    Args:
      game: level of DMLab-30, with or without folder. Training levels are scored like their test
        levels.
      returns: the return of an episode, or those of several, which are averaged.

    Raises:
      UserError: no human score of this level is known.
    """
    level = _BY_NAME.get(game.removeprefix(FOLDER))
    if level is None:
        raise UserError(
            f"'{game}' has no human score: only levels of DMLab-30 do."
            f"{_did_you_mean(nearest(game))}"
        )
    return 100.0 * (float(np.mean(returns)) - level.random) / (level.human - level.random)


def capped_human_normalized_score(
    returns: Mapping[str, float | Sequence[float] | np.ndarray],
) -> float:
    """Mean over levels of scores of at most 100 percent (Espeholt et al. 2018, section 5.3).

    Args:
      returns: returns of episodes by level; at least one level.

    Raises:
      UserError: no human score of a level is known.
    """
    return float(
        np.mean([min(_CAP, human_normalized_score(name, r)) for name, r in returns.items()])
    )


def _checked(name: str) -> str:
    bare = name.removeprefix(FOLDER)
    if bare in _BY_NAME:
        return bare
    close = nearest(bare, 0.0 if name != bare else _ALIKE)
    if close:
        raise UserError(f"Unknown level '{name}'.{_did_you_mean(close)}")
    return name  # One of the engine's other levels; if not, the engine reports it.


def _did_you_mean(names: Sequence[str]) -> str:
    return f" Did you mean {', '.join(names)}?" if names else ""
