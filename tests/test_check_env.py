"""The check of environments reports each fault, and nothing in a good environment."""

from __future__ import annotations

import ctypes
import dataclasses
import random
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seed_rl import check_env
from seed_rl.check_env import CheckConfig
from seed_rl.check_env.cost import Cost, judge
from seed_rl.check_env.findings import Findings
from seed_rl.common.acting import goals
from seed_rl.common.errors import UserError
from seed_rl.gym.env import GymConfig
from seed_rl.testing.envs import MaskedEnv
from tests.helpers import run, run_python
from tests.helpers.waiting import wait_until

QUICK = CheckConfig(check_steps=200, check_seconds=0.0, check_timeout_s=5.0)
HERE = "tests.test_check_env"


WORLD = [0.0]


class Good(gymnasium.Env[Any, Any]):
    """A random walk that ends at its edges or after 40 steps."""

    observation_space: Any = spaces.Box(-5.0, 5.0, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.place = 0, float(self.np_random.integers(-1, 2))
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place += 1.0 if action == 1 else -1.0
        over = abs(self.place) >= 5
        return self.observation(), 1.0, over, not over and self.steps >= 40, {}

    def observation(self) -> Any:
        return np.array([self.place, self.steps / 40], np.float32)


def broken(name: str) -> Any:
    """A `Good` environment with one fault."""
    return FAULTS[name]()


def fault(**changes: Any) -> Any:
    return type("Broken", (Good,), changes)


def changed(change: Any) -> Any:
    """A class whose steps are changed by `change(env, result)`."""
    return fault(step=lambda self, action: change(self, Good.step(self, action)))


def at(step: int, change: Any) -> Any:
    """As `changed`, from step number `step` of each episode on."""
    return changed(lambda env, result: change(result) if env.steps >= step else result)


LEAKED: list[Any] = []
FILES: list[Any] = []


def leaking(env: Any, result: Any) -> Any:
    LEAKED.append(np.ones(20_000))
    time.sleep(0.0002)
    return result


def opening(self: Any, **kwargs: Any) -> Any:
    FILES.append(open("/dev/null"))  # noqa: SIM115
    return Good.reset(self, **kwargs)


def raising(self: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no level")


def refusing(env: Any, result: Any) -> Any:
    raise UserError("The level is locked.")


def second(fail: Any) -> Any:
    """Makes a `Good` environment, but calls `fail` before every second one."""
    made: list[Any] = []

    def make() -> Any:
        made.append(None)
        if len(made) % 2 == 0:
            fail()
        return Good()

    return make


class SelfResetting(Good):
    """Resets itself at the end, to the same start as always."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.steps, self.place = 0, 0.0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        if rest[1] or rest[2]:
            observation, _ = self.reset()
        return observation, *rest


class Reach(Good):
    """A `Good` environment with goals of one number; each step costs what lacks."""

    observation_space = spaces.Dict(
        dict.fromkeys(goals.GOAL_KEYS, spaces.Box(-5.0, 5.0, (1,), np.float32))
    )

    def __init__(self, compute_reward: Any = None):
        self.compute_reward = compute_reward or (lambda a, d, info: self.reward(a, d))

    @staticmethod
    def reward(achieved: Any, desired: Any) -> Any:
        return -np.abs(achieved - desired)[..., 0]

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.reward(np.array([self.place]), np.ones(1))), *rest

    def observation(self) -> Any:
        place, goal = np.float32([self.place]), np.float32([1.0])
        return dict(zip(goals.GOAL_KEYS, (place, place, goal), strict=True))


FAULTS: dict[str, Any] = {
    "raises": changed(lambda env, result: 1 / 0),
    "raises_in_reset": fault(reset=raising),
    "exits": changed(lambda env, result: sys.exit(0)),
    "hangs": changed(lambda env, result: time.sleep(60)),
    "nan": at(3, lambda r: (r[0] * np.float32("nan"), *r[1:])),
    "nan_reward": at(3, lambda r: (r[0], float("nan"), *r[2:])),
    "shape": at(3, lambda r: (r[0][:1], *r[1:])),
    "dtype": at(3, lambda r: (r[0].astype(np.complex64), *r[1:])),
    "structure": at(3, lambda r: ({"place": r[0]}, *r[1:])),
    "list": at(3, lambda r: (r[0].tolist(), *r[1:])),
    "info": at(3, lambda r: (*r[:4], None)),
    "second_exits": second(lambda: sys.exit(3)),
    "second_hangs": second(lambda: time.sleep(60)),
    "other_dtype": at(3, lambda r: (r[0].astype(np.float64), *r[1:])),
    "wrapped": fault(
        observation_space=spaces.Box(-100, 100, (2,), np.int8),
        observation=lambda self: np.int64([300, 0]),
    ),
    "choice": fault(
        observation_space=spaces.Dict(a=spaces.MultiDiscrete([2, 3])),
        observation=lambda self: {"a": np.array([2, 0])},
    ),
    "bounds": at(3, lambda r: (r[0] + 100, *r[1:])),
    "reward": at(3, lambda r: (r[0], None, *r[2:])),
    "step_result": changed(lambda env, result: result[:3]),
    "reset_result": fault(reset=lambda self, **kwargs: Good.reset(self, **kwargs)[0]),
    "determinism": at(3, lambda r: (r[0] * np.float32(random.random()), *r[1:])),
    "shared": fault(
        place=property(lambda self: WORLD[0], lambda self, place: WORLD.__setitem__(0, place))
    ),
    "large_integer": fault(
        observation_space=spaces.Box(0, 2**40, (2,), np.int64),
        observation=lambda self: np.full(2, 2**39),
    ),
    "endless": changed(lambda env, result: (result[0] * 0, 1.0, False, False, {})),
    "one_step": changed(lambda env, result: (*result[:2], True, False, {})),
    "both": at(2, lambda r: (*r[:2], True, True, {})),
    "time_limit": changed(lambda env, result: (result[0] * 0, 1.0, env.steps == 9, False, {})),
    "autoreset": SelfResetting,
    "space": fault(observation_space=spaces.Text(5)),
    "actions": fault(
        action_space=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        step=lambda self, action: Good.step(self, 1),
    ),
    "float_image": fault(
        observation_space=spaces.Box(0.0, 1.0, (40, 40, 3), np.float32),
        observation=lambda self: np.zeros((40, 40, 3), np.float32),
    ),
    "channels": fault(
        observation_space=spaces.Box(0.0, 1.0, (3, 40, 40), np.float32),
        observation=lambda self: np.zeros((3, 40, 40), np.float32),
    ),
    "refused": changed(refusing),
    "action_mask": fault(
        reset=lambda self, **kwargs: (Good.reset(self, **kwargs)[0], {"action_mask": np.eye(2)[0]}),
        step=lambda self, action: (*Good.step(self, action)[:4], {"action_mask": np.zeros(2)}),
    ),
    "mask_name": changed(lambda env, result: (*result[:4], {"action_masks": np.ones(2)})),
    "mask_method": fault(action_masks=lambda self: np.ones(2)),
    "mask_of_other_actions": fault(
        action_space=spaces.MultiBinary(2),
        step=lambda self, action: (*Good.step(self, 1)[:4], {"action_mask": np.ones(2)}),
    ),
    "success": at(3, lambda r: (*r[:4], {"is_success": "yes"})),
    "successes": at(3, lambda r: (*r[:4], {"is_success": np.zeros(1)})),
    "score": at(3, lambda r: (*r[:4], {"score_reward": "1"})),
    "fractions": fault(
        observation_space=spaces.Box(0, 9, (2,), np.int64), observation=lambda self: np.full(2, 0.5)
    ),
    "integers": fault(
        observation_space=spaces.Box(0, 9, (2,), np.int64), observation=lambda self: np.ones(2)
    ),
    "bytes": fault(
        observation_space=spaces.Box(0, 255, (2,), np.uint8),
        observation=lambda self: np.ones(2),
    ),
    "wraps": fault(
        observation_space=spaces.Box(0, 255, (2,), np.uint8),
        observation=lambda self: np.array([300, 0], np.uint16),
    ),
}
FAULTS |= {
    "goal_reward": lambda: Reach(compute_reward=lambda a, d, info: Reach.reward(a, d) - 1),
    "goal_batch": lambda: Reach(compute_reward=lambda a, d, info: float(Reach.reward(a, d).sum())),
}
MUST = {
    **{"goal_reward": "compute_reward returns", "goal_batch": "shape [] for arrays of 200 goals"},
    **{"raises": "ZeroDivisionError", "hangs": "did not return within", "nan": "contains NaN"},
    **{"shape": "shape [1]; its space says [2]", "dtype": "complex64", "structure": "dict"},
    "choice": "the value [2, 0], which is not in its space",
    **{"info": "the last a dictionary", "wraps": "is uint16; its space says uint8"},
    **{"reward": "None", "step_result": "a tuple of 3", "reset_result": "an array float32[2]"},
    **{"one_step": "first step", "space": "fixed shape", "actions": "no bounds"},
    **{"refused": "level is locked", "raises_in_reset": "reset() raised", "exits": "sys.exit"},
    "large_integer": "more than 1e+09",
    **{"nan_reward": "the reward nan", "action_mask": "allows no action", "success": "is_success"},
    **{"successes": "is_success is an array of shape [1]", "score": "its score_reward is '1'"},
    "bytes": "is float64; its space says uint8",
}
SHOULD = {
    **{"determinism": "differ from step", "bounds": "outside of the bounds", "both": "both"},
    **{
        "other_dtype": "returned float64",
        "integers": "returned float64",
        "fractions": "its space is",
        "list": "returned float64",
    },
    **{"second_exits": "it called sys.exit()", "second_hangs": "it did not return within"},
    "shared": "while a second environment",
    "wrapped": "outside of the bounds",
    **{"endless": "No episode ended", "time_limit": "after exactly 9 steps"},
    **{"mask_name": "action_masks looks like", "mask_method": "action_masks() looks like"},
    "mask_of_other_actions": "only Discrete and MultiDiscrete actions can be masked",
    **{"autoreset": "reset itself", "float_image": "19,200 bytes", "channels": "channels first"},
}


def found(name: str, config: CheckConfig = QUICK) -> dict[str, Any]:
    environment = GymConfig(f"{HERE}:broken", env_kwargs=f'{{"name": "{name}"}}')
    _, findings = check_env.check(environment, config)
    return {finding.name: finding for finding in findings}


@pytest.mark.parametrize("name", [*MUST, *SHOULD])
def test_each_fault_is_found(name: str) -> None:
    """Its name, severity and message, and no other fault that stops training."""
    config = CheckConfig(200, 0.0, 0.2) if name.endswith("hangs") else QUICK
    findings = found(name, config)
    kind = {
        "raises_in_reset": "raises",
        "exits": "raises",
        "info": "step_result",
        "wraps": "dtype",
        **dict.fromkeys(("second_exits", "second_hangs"), "single"),
        "wrapped": "bounds",
        "nan_reward": "nan",
        "large_integer": "nan",
        "success": "reward",
        "successes": "reward",
        "score": "reward",
        **dict.fromkeys(("integers", "fractions", "list"), "other_dtype"),
        "bytes": "dtype",
        "mask_method": "mask_name",
    }
    kind = kind.get(name, name)
    finding = findings[kind]
    said = MUST.get(name) or SHOULD[name]
    assert said in finding.what + finding.cost
    assert finding.must == (name in MUST)
    assert finding.cost and finding.fix
    assert [other for other in findings.values() if other.must and other is not finding] == []


FAULTS["leak"] = changed(leaking)
FAULTS["files"] = fault(reset=opening)


@pytest.mark.parametrize("name", ["leak", "files"])
def test_what_is_measured(name: str) -> None:

    def measured() -> Any:
        try:
            return found(name, CheckConfig(50, 0.6, 30.0)).get(name)
        finally:
            LEAKED.clear()
            while FILES:
                FILES.pop().close()

    # On a busy machine, it may not get to a step in a fifth of a measurement.
    assert wait_until(measured).must


COST = Cost(1000.0, 0.01, 0.1, 1.0, 0.0, False, 0)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (COST, {}),
        (dataclasses.replace(COST, reset_share=0.6), {"slow_reset": "60% of the time, 10.0 ms"}),
        (dataclasses.replace(COST, cores=2.5), {"threads": "2.5 cores"}),
        (dataclasses.replace(COST, leaks=True, growth=2e3), {"leak": "2,000 bytes per step"}),
        (dataclasses.replace(COST, open_files=9), {"files": "9 more files"}),
    ],
)
def test_what_costs_too_much(cost: Cost, expected: dict[str, str]) -> None:
    findings = Findings()
    judge(cost, findings)
    assert {finding.name for finding in findings} == set(expected)
    assert all(expected[finding.name] in finding.what for finding in findings)


def test_a_good_environment() -> None:
    """Nothing to fix, and the facts."""
    facts, findings = check_env.check(GymConfig(f"{HERE}:Good"), CheckConfig(500, 0.3, 30.0))
    assert not [finding for finding in findings if finding.name != "heavy"]
    text = check_env.report(facts, findings)
    assert "network: dense layers" in text
    assert "agents: vtrace, ppo, r2d2, pqn, sac" in text
    assert "steps/s on one core" in text
    assert "46 bytes per step" in text  # 30 of the call, 8 of observations, 8 of actions.


def masked(num_envs: int) -> Any:
    return SyncVectorEnv([MaskedEnv] * num_envs)


def vector(num_envs: int, fault: str = "", mode: str = "NextStep") -> Any:
    maker = FAULTS[fault] if fault else Good
    return SyncVectorEnv([maker] * num_envs, autoreset_mode=AutoresetMode(mode))


class WithoutMask(SyncVectorEnv):
    def __init__(self, num_envs: int):
        super().__init__([Good] * num_envs)
        self.metadata["reset_mask"] = False


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("vector", "{}", set()),
        ("vector", '{"mode": "Disabled"}', set()),
        ("vector", '{"mode": "SameStep"}', set()),
        ("vector", '{"fault": "nan"}', {"nan"}),
        ("vector", '{"fault": "determinism"}', {"determinism"}),
        ("vector", '{"fault": "raises"}', {"raises"}),
        ("WithoutMask", "{}", {"reset_mask"}),
        ("masked", "{}", set()),
    ],
)
def test_vector_environments(name: str, arguments: str, expected: set[str]) -> None:
    config = CheckConfig(400, 0.0 if expected else 0.2, 30.0)
    facts, findings = check_env.check(GymConfig(f"{HERE}:{name}", env_kwargs=arguments), config)
    assert {finding.name for finding in findings} - {"heavy"} == expected
    assert any("vector environment" in fact for fact in facts)
    assert any("Action masks: in the" in fact for fact in facts) == (name == "masked")
    for finding in findings:
        if finding.name == "raises":
            assert "ZeroDivisionError" in finding.what and "test_check_env.py" in finding.what


@pytest.mark.parametrize("place", ["info", "observation"])
def test_only_allowed_actions_are_tried(place: str) -> None:
    """`MaskedEnv` raises if it gets another."""
    config = GymConfig("seed_rl.testing.envs:MaskedEnv", env_kwargs=f'{{"place": "{place}"}}')
    facts, findings = check_env.check(config, CheckConfig(200, 0.2, 30.0))
    assert not [finding for finding in findings if finding.name != "heavy"], findings
    assert any(f"Action masks: in the {place}" in fact for fact in facts)


def masked_images() -> Any:
    env = MaskedEnv("observation")
    image = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    space = spaces.Dict({**env.observation_space.spaces, "observation": image})
    blank = np.zeros(image.shape, np.uint8)
    return gymnasium.wrappers.TransformObservation(
        env, lambda observation: {**observation, "observation": blank}, space
    )


def test_networks_do_not_see_masks() -> None:
    """Guards that a mask counts as no second input beside an image."""
    facts, _ = check_env.check(GymConfig(f"{HERE}:masked_images"), QUICK)
    assert any("network: convolutions." in fact for fact in facts), facts


def test_no_such_environment_is_an_error_of_the_call() -> None:
    with pytest.raises(UserError, match="Did you mean CartPole-v1"):
        check_env.check(GymConfig("CartPool-v1"), QUICK)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--env=CartPole-v1"], 0, "No problems found"),
        (["--env_name=tests.test_check_env:Reach"], 0, "No problems found"),
        (["--env=tests.test_check_env:broken", '--env_kwargs={"name": "nan"}'], 1, "MUST BE"),
        (["--env=CartPool-v1"], 2, "Did you mean"),
        (["--help"], 0, "usage: python -m seed_rl.check_env ["),
    ],
)
def test_the_program(repository: Any, arguments: list[str], code: int, said: str) -> None:
    """Scripts can rely on its exit code."""
    result = run_python(
        "-m", "seed_rl.check_env", *arguments, "--check_seconds=0.2", code=code, cwd=repository
    )
    assert said in result.stdout + result.stderr


def deadlock(env: Any, result: Any) -> Any:
    """Native code that waits forever, holds Python's lock, and ignores signals."""
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


FAULTS["deadlock"] = changed(deadlock)


def test_a_hang_in_native_code_ends_the_check(repository: Any) -> None:
    """Guards from a check that itself hangs; the traceback names the call."""
    command = [sys.executable, "-m", "seed_rl.check_env", "--env=tests.test_check_env:broken"]
    command += ['--env_kwargs={"name": "deadlock"}', "--check_timeout_s=0.5"]
    result = run(*command, code=1, cwd=repository)
    assert "Timeout" in result.stderr and "in deadlock" in result.stderr
