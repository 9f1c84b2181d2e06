"""What is wrong with an environment, what it costs, and how to fix it."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.check_env import cost as cost_lib
from seed_rl.check_env import space_check
from seed_rl.check_env.contract import Contract, random_action
from seed_rl.check_env.cost import Clock, Cost
from seed_rl.check_env.findings import Findings, Unusable
from seed_rl.common import nest
from seed_rl.common.acting import action_masks, env_wrappers
from seed_rl.common.acting import spaces as space_lib
from seed_rl.common.acting.vector_environment import AutoresetMode, VectorEnvironment
from seed_rl.common.config.options import Checked, option
from seed_rl.common.types import LARGEST
from seed_rl.gym import env as gym_env

_HEAVY = {"tensorflow": "half a gigabyte", "torch": "a quarter of a gigabyte", "jax": "as much"}
_VECTOR_SIZE = 4


@dataclasses.dataclass(frozen=True)
class CheckConfig(Checked):
    """The check."""

    check_steps: int = option(1000, "Steps with random actions, whose results are checked.")
    check_seconds: float = option(
        6.0, "Seconds spent measuring speed and memory; 0: none.", minimum=0
    )
    check_timeout_s: float = option(
        60.0, "Seconds after which a call counts as hanging.", minimum=0.1
    )


def check(environment: gym_env.GymConfig, config: CheckConfig) -> tuple[list[str], Findings]:
    """Checks the environment.

    Args:
      environment: its options.
      config: how thoroughly.

    Returns:
      Facts about it, in words, and what to fix.

    Raises:
      UserError: there is no such environment.
    """
    gym_env.constructor(environment)  # Not found: an error of the call, not of the environment.
    arguments = gym_env.keyword_arguments(environment)
    facts: list[str] = []
    findings = Findings()
    limit = config.check_timeout_s
    try:
        with findings.of("Creating the environment", limit):
            vector = gym_env.create_batch(np.arange(_VECTOR_SIZE), environment)
        if vector is not None:
            _check_vector(vector, config, facts, findings)
        else:
            with findings.of("Creating the environment", limit):
                env = gym_env.make(environment, arguments)
            _check_single(env, environment, config, facts, findings)
    except Unusable:
        pass
    for package, memory in _HEAVY.items():
        if package in sys.modules:
            findings.should(
                "heavy",
                f"The environment imports {package}.",
                f"Seconds at the start and {memory} for each actor.",
                "Import it only where it is used, or not at all.",
            )
    return facts, findings


def _check_single(
    env: Any,
    environment: gym_env.GymConfig,
    config: CheckConfig,
    facts: list[str],
    findings: Findings,
) -> None:
    contract = Contract(env, findings, config.check_timeout_s, environment.raw_observations)
    observations = contract.env.observation_space
    if not environment.raw_observations:
        observations = env_wrappers.observation_conversion(observations).space
    actions = env_wrappers.action_conversion(contract.env.action_space).space
    facts += _of_spaces(observations, actions)
    try:
        arguments = gym_env.keyword_arguments(environment)
        contract.check(config.check_steps, lambda: gym_env.make(environment, arguments))
    finally:
        facts += _of_masks(contract.masks)
    lengths = contract.episodes.lengths
    if lengths:
        facts.append(
            f"Episodes: {len(lengths)} ended, after {min(lengths)} to {max(lengths)} random steps; "
            f"{sum(contract.episodes.terminated)} terminated, "
            f"{len(lengths) - sum(contract.episodes.terminated)} truncated."
        )
    if config.check_seconds:

        def step(clock: Clock) -> None:
            space, (observation,) = played.action_space, last
            mask = observation[action_masks.KEY] if contract.masks else None
            action = random_action(space, mask, random)
            last[0], _, terminated, truncated, _ = played.step(action)
            clock.steps += 1
            if terminated or truncated:
                clock.reset(reset)

        def reset() -> None:
            last[:] = played.reset()[:1]

        played = env_wrappers.wrap_for_agent(contract.env, not environment.raw_observations)
        with findings.of("Playing on", config.check_seconds + config.check_timeout_s):
            last: list[Any] = [None]
            random = np.random.default_rng(1)
            reset()
            cost = cost_lib.measure(step, config.check_seconds)
        cost_lib.judge(cost, findings)
        facts += _of_cost(cost, observations, played.action_space)
    with findings.of("close()", config.check_timeout_s):
        contract.env.close()


def _check_vector(
    env: VectorEnvironment, config: CheckConfig, facts: list[str], findings: Findings
) -> None:
    """A vector environment, through its adapter, which checks what each step returns."""
    space_check.check_spaces(env.observation_space, env.env.single_action_space, findings)
    facts += _of_spaces(env.observation_space, env.action_space)
    facts.append(f"A vector environment that resets {_MODES[env.autoreset_mode]}.")
    facts += _of_masks(env.masks)
    size = len(env.env_ids)
    env.action_space.seed(1)
    actions = [_batch(env.action_space, size) for _ in range(max(config.check_steps // size, 2))]
    if not env.resets_rows:
        findings.should(
            "reset_mask",
            "It cannot reset environments individually.",
            "Each terminated episode costs one extra step that is not learned from."
            if env.autoreset_mode == AutoresetMode.NEXT_STEP
            else "After a truncated episode, agents do not see the first step of the next.",
            'Make reset() accept options={"reset_mask": <bool>[num_envs]}, and set '
            'metadata["reset_mask"] = True.',
        )

    def action(number: int, observation: Any) -> Any:
        if not env.masks:
            return actions[number % len(actions)]
        mask, random = observation[action_masks.KEY], np.random.default_rng(number)
        return action_masks.allowed_actions(env.action_space, mask, random)

    def play(seed: int | None) -> list[Any]:
        with findings.of("reset()", config.check_timeout_s):
            observation = env.reset(seed)
            seen = [_flat(observation)]
        for number in range(len(actions)):
            with findings.of(f"step() number {number + 1}", config.check_timeout_s):
                step = env.step(action(number, observation))
                observation = step.observation
                seen.append(_flat(step._replace(success=np.zeros(0))))
        return seen

    first, second = play(1), play(1)
    if not all(map(np.array_equal, first, second)) and np.isfinite(np.concatenate(first)).all():
        findings.not_deterministic()
    if not (np.abs(np.concatenate(first)) <= LARGEST).all():
        findings.not_finite(
            f"Observations or rewards contain NaN, infinity or more than {LARGEST:.0e}"
        )
    if config.check_seconds:

        def step(clock: Clock) -> None:
            last[0] = env.step(action(clock.steps // size, last[0])).observation
            clock.steps += size

        with findings.of("Playing on", config.check_seconds + config.check_timeout_s):
            last = [env.reset()]
            cost = cost_lib.measure(step, config.check_seconds)
        cost_lib.judge(cost, findings)
        facts += _of_cost(cost, env.observation_space, env.action_space)
    env.close()


_MODES = {
    AutoresetMode.NEXT_STEP: "in the step after an episode's last",
    AutoresetMode.SAME_STEP: "in the last step of an episode",
    AutoresetMode.DISABLED: "when told to",
}


def _flat(value: Any) -> np.ndarray:
    """All numbers of a nest, copied."""
    return np.concatenate([np.ravel(leaf) for leaf in nest.flatten(value)])


def _batch(space: spaces.Space[Any], size: int) -> Any:
    """Random actions, a nest of [size, ...]."""
    samples = [space.sample() for _ in range(size)]
    return nest.map_structure(lambda *leaves: np.stack(leaves), *samples)


def _of_spaces(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> list[str]:
    """How agents treat the spaces."""
    try:
        described = space_lib.describe(observations), space_lib.describe(actions)
    except Exception:  # A finding gives the reason.
        return []
    seen = action_masks.without_mask(observations)
    images = [space_lib.is_image(leaf) for leaf in space_lib.leaf_spaces(seen)]
    network = "convolutions" if all(images) else "dense layers"
    if any(images) and not all(images):
        network = "convolutions for the images, dense layers for the rest, concatenated"
    agents = ["vtrace", "ppo"]
    agents += ["r2d2", "pqn"] if isinstance(actions, spaces.Discrete) else []
    agents += [] if any(images) else ["sac"]
    return [
        f"Observations: {described[0]}; network: {network}.",
        f"Actions: {described[1]}; agents: {', '.join(agents)}.",
    ]


def _of_masks(masks: action_masks.ActionMasks | None) -> list[str]:
    if masks is None:
        return []
    where = "info" if masks.in_info else "observation"
    return [f"Action masks: in the {where}; agents choose only what they allow."]


def _of_cost(cost: Cost, observations: Any, actions: Any) -> list[str]:
    size = cost_lib.bytes_per_step(observations, actions)
    reset = "" if cost.reset_s is None else f"; a reset takes {cost.reset_s * 1e3:,.2f} ms"
    return [
        f"Speed: {cost.steps_per_s:,.0f} steps/s on one core, resets included{reset}.",
        f"Wire: {size:,} bytes per step, {size * cost.steps_per_s / 1e6:,.2f} MB/s per core at "
        "that speed.",
    ]


def report(facts: Sequence[str], findings: Findings) -> str:
    """The result of a check, for people."""
    lines = list(facts)
    found = list(findings)
    for finding in found:
        head = "MUST BE FIXED" if finding.must else "Could be better"
        lines += ["", f"{head} ({finding.name}): {finding.what}"]
        lines += [f"  Consequence: {finding.cost}", f"  Fix: {finding.fix}"]
    must = sum(finding.must for finding in found)
    verdict = f"{must} to fix, {len(found) - must} to consider."
    lines += ["", verdict if found else "No problems found."]
    wrapped = [textwrap.fill(line, 100, subsequent_indent="    ") for line in lines]
    return "\n".join(wrapped)
