"""Random network distillation as a mixin for algorithms."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from examples.rnd import RND
from examples.rnd_config import RNDConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.learner.algorithm import StepResult
from seed_rl.common.types import EnvOutput


class WithRND:
    """Adds the bonus to any `Algorithm`: `class RNDVTrace(WithRND, VTrace)`."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.rnd = RND(from_flags(RNDConfig), self.specs)  # type: ignore[attr-defined]

    def learning_rewards(self, env_outputs: EnvOutput) -> tf.Tensor:
        return env_outputs.reward + self.rnd.bonus(env_outputs)

    def with_rnd_loss(self, result: StepResult, env_outputs: EnvOutput) -> StepResult:
        loss = self.rnd.loss(env_outputs)
        return result._replace(
            loss=result.loss + loss, metrics={**result.metrics, "losses/rnd": loss}
        )

    def trainable_variables(self) -> list[Any]:
        return super().trainable_variables() + self.rnd.trainable()  # type: ignore[misc]

    def clipped_apart(self) -> list[Any]:
        return super().clipped_apart() + self.rnd.trainable()  # type: ignore[misc]

    def checkpointables(self) -> dict[str, Any]:
        return {**super().checkpointables(), "rnd": self.rnd}  # type: ignore[misc]
