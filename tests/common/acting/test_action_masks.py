"""Masks of actions and successes, from the environment to the actor's reports."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seed_rl.common.acting.action_masks import KEY, ActionMasks
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.acting.vector_environment import VectorEnvironment
from seed_rl.common.errors import UserError
from seed_rl.testing.envs import MaskedEnv

VECTOR = spaces.Box(-1, 1, (2,), np.float32)


def batch(how, size, *arguments):
    if how == "single":
        return BatchedEnvironment(lambda *_: wrap_for_agent(MaskedEnv(*arguments)), size, 0)
    mode, resets_rows = how
    envs = SyncVectorEnv([lambda: MaskedEnv(*arguments)] * size, autoreset_mode=mode)
    envs.metadata = {**envs.metadata, "reset_mask": resets_rows}
    return VectorEnvironment(envs, np.arange(size))


@pytest.mark.parametrize("choices", [(5,), (2, 3)])
@pytest.mark.parametrize("place", ["info", "observation"])
@pytest.mark.parametrize(
    "how",
    [
        "single",
        *((mode, True) for mode in AutoresetMode),
        (AutoresetMode.NEXT_STEP, False),
        (AutoresetMode.SAME_STEP, False),
    ],
)
def test_masks_are_those_of_the_observed_states(how, place, choices):
    """Guards masks of resets and last observations: the environment raises if one is wrong.

    Also the successes, which are those of the episodes that end, with the end.
    """
    size, rng = 3, np.random.default_rng(0)
    env = batch(how, size, place, choices)
    assert set(env.observation_space.spaces) == {"observation", KEY}
    observation = env.reset(seed=1)
    returns, ends, seen = np.zeros(size), [0] * size, set()
    for _ in range(100):
        mask = observation[KEY]
        assert mask.dtype == np.uint8 and mask.shape == (size, sum(choices))
        scores = np.where(mask, rng.random(mask.shape), -1)
        parts = np.split(scores, np.cumsum(choices)[:-1], axis=1)
        actions = np.array([part.argmax(1) for part in parts]).T  # Of row 1, the best.
        actions[1] = [part.argmax() for part in np.split(mask[1], np.cumsum(choices)[:-1])]
        step = env.step(actions if len(choices) > 1 else actions[:, 0])
        observation = step.observation
        returns += step.reward
        for i in np.flatnonzero(step.done & (step.episode_step == 0)):
            seen.add(step.success[i])
            # Without partial resets, a step is not seen.
            assert step.success[i] == (returns[i] > 5) or (i != 1 and False in how)
            returns[i], ends[i] = 0, ends[i] + 1
    assert min(ends) >= 8 and seen == {0.0, 1.0}


def test_a_mask_allows_something_until_the_episode_is_over():
    masks = ActionMasks(VECTOR, spaces.MultiDiscrete([2, 2]), True, "Chess")
    nothing, observation = {KEY: (np.array([0, 1]), np.zeros(2))}, np.zeros(2, np.float32)
    with pytest.raises(UserError, match="Chess: its action_mask allows no action"):
        masks.put(observation, masks.find(observation, nothing))
    with pytest.raises(UserError, match="allows no action"):
        masks.put(observation, masks.find(observation, {}))  # Forgotten.
    for info in (nothing, {}):
        assert (
            masks.put(observation, masks.find(observation, info), over=True)[KEY].tolist()
            == [1] * 4
        )
    with pytest.raises(UserError, match="has 3 entries, but there are 4"):
        masks.find(observation, {KEY: np.ones(3)})


def test_other_actions_cannot_be_masked():
    env = gymnasium.make("Pendulum-v1")
    env.observation_space = spaces.Dict({"state": VECTOR, KEY: VECTOR})
    with pytest.raises(UserError, match="only Discrete and MultiDiscrete actions can be masked"):
        wrap_for_agent(env)


def test_taxi_has_its_mask():
    taxi = sorted(name for name in gymnasium.registry if name.startswith("Taxi-"))[-1]
    env = wrap_for_agent(gymnasium.make(taxi))
    observation, info = env.reset(seed=1)
    np.testing.assert_array_equal(observation[KEY], info[KEY])
    assert env.observation_space.contains(observation)
