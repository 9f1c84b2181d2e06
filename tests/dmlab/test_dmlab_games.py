"""Levels and scores of DMLab-30."""

from __future__ import annotations

import numpy as np
import pytest

from seed_rl.common.errors import UserError
from seed_rl.dmlab import games


def test_thirty_levels_two_of_which_are_tested_elsewhere() -> None:
    assert len(games.LEVELS) == len({level.train for level in games.LEVELS}) == 30
    assert [level.train for level in games.LEVELS if level.train != level.test] == [
        "rooms_collect_good_objects_train",
        "rooms_exploit_deferred_effects_train",
    ]
    for table in (games.ALL_LEVELS, games.HUMAN_SCORES, games.RANDOM_SCORES):
        assert set(table) == {games.LEVEL_MAPPING[level.train] for level in games.LEVELS}
    assert games.level_for_tests("rooms_watermaze") == "rooms_watermaze"
    assert games.level_for_tests("lt_chasm") == "lt_chasm"


@pytest.mark.parametrize("level", games.LEVELS, ids=lambda level: level.test)
def test_random_is_0_and_human_is_100(level: games.Level) -> None:
    assert level.human > level.random
    for name in (level.train, level.test, games.FOLDER + level.test):
        assert games.human_normalized_score(name, level.random) == pytest.approx(0)
        assert games.human_normalized_score(name, [level.human, level.human]) == pytest.approx(100)


def test_scores_of_the_publication() -> None:
    """Three lines of the paper's table, which rounds to one digit: IMPALA's returns and scores."""
    for name, human, random in (
        ("rooms_watermaze", 54.0, 4.1),
        ("language_select_located_object", 280.7, 1.9),
        ("explore_object_rewards_many", 106.7, 2.4),
    ):
        level = next(level for level in games.LEVELS if level.test == name)
        assert (round(level.human, 1), round(level.random, 1)) == (human, random)


def test_the_mean_is_over_levels_and_capped_in_each() -> None:
    """An expert level does not make up for a weak one."""
    half = (267.5 + 7.66) / 2
    returns = {
        "explore_goal_locations_small": [half - 1, half + 1],
        "natlab_fixed_large_map": np.array([1000.0]),
    }
    assert games.capped_human_normalized_score(returns) == pytest.approx(75)


def test_names() -> None:
    assert (
        games.choose("DMLab-30") == games.choose("dmlab30") == tuple(x.train for x in games.LEVELS)
    )
    assert games.choose("rooms_watermaze, lt_chasm,") == ("rooms_watermaze", "lt_chasm")
    assert games.choose("contributed/dmlab30/rooms_watermaze") == ("rooms_watermaze",)
    assert games.engine_name("rooms_watermaze") == "contributed/dmlab30/rooms_watermaze"
    assert games.engine_name("tests/empty_room_test") == "tests/empty_room_test"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rooms_watermaz", "rooms_watermaze"),
        ("lasertag_one_oponent_small", "lasertag_one_opponent_small"),
        ("contributed/dmlab30/watermaze", "rooms_watermaze"),
    ],
)
def test_misspelled_names_are_corrected(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"Did you mean .*{meant}"):
        games.choose(typed)


def test_other_levels_have_no_score() -> None:
    assert not games.is_scored("lt_chasm")
    with pytest.raises(UserError, match="'lt_chasm' has no human score"):
        games.human_normalized_score("lt_chasm", 1.0)
