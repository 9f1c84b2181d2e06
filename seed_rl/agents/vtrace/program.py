"""Main program of V-trace learners and actors, for any environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig, VTraceReplayConfig
from seed_rl.common.acting.agent_program import AgentProgram
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig


def _create_job() -> Callable[..., Any]:
    from seed_rl.agents.vtrace.algorithm import create_job  # TensorFlow: in the learner only.

    return create_job


PROGRAM = AgentProgram(
    "vtrace", _create_job, (VTraceConfig, VTraceReplayConfig, ContinuousDistributionConfig)
)
"""Without a network or a preset of its own."""

main = PROGRAM.main
