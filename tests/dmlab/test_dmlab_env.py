"""The environment, on the real engine too where it is installed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils import env_checker

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.errors import UserError
from seed_rl.dmlab import environment as env
from seed_rl.dmlab import games, instructions
from seed_rl.dmlab.environment import DEFAULT_ACTION_SET, DmLab, DmlabConfig, create_environment

SHORT = {"episodeLengthSeconds": "1"}  # 60 frames, 15 actions.


def short(level: str = "rooms_watermaze", **options: Any) -> DmLab:
    settings = {**SHORT, **options.pop("config", {})}
    return DmLab(
        level, 4, options.pop("seed", None), options.pop("is_test", False), settings, **options
    )


def episode(lab: DmLab, seed: int | None = None) -> tuple[np.ndarray, list[float]]:
    """The frames and rewards of an episode with the same actions each time."""
    frames, rewards, terminated = [lab.reset(seed=seed)[0]], [], False
    while not terminated:
        observation, reward, terminated, truncated, _ = lab.step(len(rewards) % 9)
        assert not truncated
        frames.append(observation)
        rewards.append(reward)
    return np.stack(frames), rewards


def test_frames_and_actions_are_those_of_the_paper(engine: Any) -> None:
    lab = short()
    assert lab.observation_space.shape == (72, 96, 3) and lab.observation_space.dtype == np.uint8
    assert lab.action_space.n == 9
    frames, rewards = episode(lab, seed=1)
    assert frames.shape[1:] == (72, 96, 3) and frames.dtype == np.uint8
    assert len(rewards) == 15  # 60 frames, 4 per action.
    assert all(type(reward) is float for reward in rewards)
    lab.close()


def test_gymnasium_finds_no_fault(engine: Any) -> None:
    """Among other things: the same seed gives the same observations, in old and new objects."""
    env_checker.check_env(short(), skip_render_check=True, skip_close_check=True)


def test_the_end_repeats_the_last_observation(engine: Any) -> None:
    """The engine has none, and raises if it is queried."""
    lab = short()
    frames, _ = episode(lab, seed=1)
    np.testing.assert_array_equal(frames[-1], frames[-2])
    with pytest.raises(ResetNeeded):
        lab.step(0)
    episode(lab)
    lab.close()


def test_a_closed_environment_stays_closed(engine: Any) -> None:
    """A reset after close would end the process; and steps need a reset."""
    lab = short()
    with pytest.raises(ResetNeeded):
        lab.step(0)
    lab.reset()
    lab.close()
    lab.close()
    with pytest.raises(ClosedEnvironmentError):
        lab.reset()
    with pytest.raises(ResetNeeded):
        lab.step(0)


def test_a_seed_determines_the_episodes_whatever_came_before(engine: Any) -> None:
    used, fresh, by_argument = short(), short(), short(seed=7)
    episode(used)
    runs = [[episode(lab, seed), episode(lab)] for lab, seed in ((used, 7), (fresh, 7))]
    runs.append([episode(by_argument), episode(by_argument)])
    for run in runs[1:]:
        for (frames, rewards), (expected_frames, expected_rewards) in zip(
            run, runs[0], strict=True
        ):
            np.testing.assert_array_equal(frames, expected_frames)
            assert rewards == expected_rewards
    for lab in (used, fresh, by_argument):
        lab.close()


def test_every_environment_has_its_own_seed(standin: Any) -> None:
    """With and without --seed; and the episodes of one environment differ."""
    for seed in (None, 3):
        batch = BatchedEnvironment(create_environment, 4, 0, DmlabConfig(num_envs=4))
        first = batch.reset(seed=seed).copy()
        assert len({frame.tobytes() for frame in first}) == 4
        assert not (batch.reset() == first).all()
        batch.close()


def test_the_engine_gets_arrays_as_it_wants_them(standin: Any) -> None:
    """Contiguous arrays of intc, one column per action of the level; the last it has not named."""
    lab = DmLab("laps", 4, None, False, SHORT)
    assert lab.metadata["render_fps"] == 15
    lab.reset()
    for action in range(9):
        lab.step(action)
    sent = np.stack(lab._lab.actions)
    np.testing.assert_array_equal(sent, np.pad(DEFAULT_ACTION_SET, ((0, 0), (0, 1))))
    assert lab._lab.num_steps() == 9 * 4


def test_settings_are_texts(standin: Any) -> None:
    lab = short(config={"allowHoldOutLevels": True, "fps": 30}, is_test=False)
    lab.reset()
    assert lab._lab.config == {
        "width": "96",
        "height": "72",
        "allowHoldOutLevels": "true",
        "fps": "30",
        **SHORT,
    }


def test_evaluation_plays_the_levels_of_tests(standin: Any) -> None:
    config = DmlabConfig(game="dmlab30", num_envs=33, num_eval_envs=2, instructions=False)
    training, wrapped, evaluation = (create_environment(i, config) for i in (0, 30, 31))
    for lab in (training, wrapped, evaluation):
        lab.reset()
    folder = "contributed/dmlab30/"
    assert training._lab.level == wrapped._lab.level == f"{folder}rooms_collect_good_objects_train"
    assert evaluation._lab.level == f"{folder}rooms_collect_good_objects_test"
    assert evaluation._lab.config["allowHoldOutLevels"] == "true"
    assert "allowHoldOutLevels" not in training._lab.config
    assert evaluation._lab.config["mixerSeed"] != training._lab.config.get("mixerSeed", "0")


def test_each_environment_plays_the_level_of_its_id() -> None:
    config = DmlabConfig(game="dmlab30", num_envs=95, num_eval_envs=30)
    levels = [config.task_of(i) for i in range(95)]
    assert levels[:30] == levels[30:60] == [level.train for level in games.LEVELS]
    assert levels[65:] == [level.test for level in games.LEVELS]
    assert config.task_score("explore_goal_locations_small", 267.5) == pytest.approx(100)
    assert config.task_score("explore_goal_locations_small", 1e6) == 100
    assert config.task_score("lt_chasm", 1) is None


def test_levels_of_tests_are_not_played_by_mistake() -> None:
    """In programs that do not say how many environments there are."""
    config = DmlabConfig(game="dmlab30")
    assert [config.task_of(i) for i in range(30)] == [level.train for level in games.LEVELS]
    assert not config.is_evaluation(30)


@pytest.mark.parametrize("folder", ["", games.FOLDER])
@pytest.mark.parametrize("level", ["rooms_collect_good_objects", "rooms_exploit_deferred_effects"])
def test_levels_of_tests_are_not_trained_on(standin: Any, level: str, folder: str) -> None:
    """Guards against the engine's "Levels in hold out must not be used for training"."""
    message = f"{level}_test' is a level for tests.* --game={level}_train.* --num_eval_envs=1"
    with pytest.raises(UserError, match=message):
        DmlabConfig(game=f"lt_chasm,{folder}{level}_test", num_envs=2, num_eval_envs=1)
    with pytest.raises(UserError, match=message):
        DmLab(f"{folder}{level}_test", 4, None, False, None)
    DmLab(f"{level}_test", 4, None, True, None).reset()
    DmLab(f"{level}_test", 4, None, False, {"allowHoldOutLevels": True}).reset()


def test_instructions_are_words_the_network_can_read(standin: Any) -> None:
    config = DmlabConfig(game="rooms_watermaze,language_execute_random_task", num_envs=2)
    batch = BatchedEnvironment(create_environment, 2, 0, config)
    observation = batch.reset()
    silent, spoken = observation[env.INSTRUCTION]
    assert not silent.any()
    np.testing.assert_array_equal(spoken, instructions.encode("pick up the RED hat", 16))
    assert (spoken > 0).tolist() == [True] * 5 + [False] * 11
    assert observation[env.FRAME].shape == (2, 72, 96, 3)
    step = batch.step(np.array([0, 0]))
    np.testing.assert_array_equal(step.observation[env.INSTRUCTION][1], spoken)


def test_hashes_are_the_same_in_all_processes() -> None:
    """Python's own are not; networks would read noise."""
    assert instructions.encode("Go", 2).tolist() == [775, 0]
    assert instructions.encode("go, GO!", 3).tolist() == instructions.encode("Go go", 3).tolist()
    assert instructions.encode("a b c", 2).all()


def test_instructions_are_sent_only_where_there_are_any() -> None:
    assert not DmlabConfig(game="rooms_watermaze").reads_instructions()
    assert DmlabConfig(game="dmlab30").reads_instructions()
    assert not DmlabConfig(game="dmlab30", instructions=False).reads_instructions()
    assert DmlabConfig(game="tests/empty_room_test", instructions=True).reads_instructions()


def test_learners_need_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """They create an environment for its spaces. A reset reports where to get the engine."""
    monkeypatch.setitem(sys.modules, "deepmind_lab", None)
    lab = create_environment(0, DmlabConfig())
    assert lab.observation_space.shape == (72, 96, 3)
    with pytest.raises(UserError, match=r"not installed.*github.com/google-deepmind/lab"):
        lab.reset()
    lab.close()


def test_unknown_levels_are_reported_with_similar_ones(standin: Any) -> None:
    with pytest.raises(UserError, match="Did you mean explore_goal_locations_small"):
        DmlabConfig(game="explore_goal_location_smal")
    with pytest.raises(UserError, match="lasertag_one_opponent_small"):
        DmlabConfig(game="contributed/dmlab30/lasertag_one_oponent_small")
    with pytest.raises(UserError, match="cannot load the level 'nowhere': Level not found"):
        create_environment(0, DmlabConfig(game="nowhere")).reset()
    with pytest.raises(UserError, match="--game is empty"):
        DmlabConfig(game=",")


def test_odd_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="--width=90"):
        DmlabConfig(width=90)


def test_too_few_environments_for_all_levels_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    create_environment(0, DmlabConfig(game="dmlab30", num_envs=4))
    assert "cannot play all 30 levels" in caplog.text


def test_files_of_the_engine_may_be_elsewhere(standin: Any) -> None:
    create_environment(0, DmlabConfig(homepath="/opt/lab", dataset_path="/data")).reset()
    assert standin.runfiles_path == "/opt/lab"


def test_levels_are_cached(standin: Any, tmp_path: Any) -> None:
    """The fake fails the test if an entry is not what it has written."""
    for _ in range(2):
        lab = short(level_cache_dir=str(tmp_path / "levels"))
        lab.reset(seed=1)
        lab.close()
    assert len(list((tmp_path / "levels").iterdir())) == 1
