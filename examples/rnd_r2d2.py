"""R2D2 with an exploration bonus, on any Gymnasium environment. Learner and actor:

python -m examples.rnd_r2d2 --run_mode=learner --num_envs=8 --env_name=CartPole-v1
python -m examples.rnd_r2d2 --run_mode=actor --num_envs=8 --env_batch_size=8 \
        --env_name=CartPole-v1
"""

from __future__ import annotations

from typing import Any

from examples.rnd_config import RNDConfig
from seed_rl.agents.r2d2 import program
from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.common.config.options import from_flags
from seed_rl.gym import r2d2_main


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    import tensorflow as tf

    from examples.rnd import RND
    from seed_rl.agents.r2d2.algorithm import R2D2
    from seed_rl.common.learner.algorithm import StepResult
    from seed_rl.common.types import Unroll

    class RNDR2D2(R2D2):
        """R2D2 with a bonus for observations not seen before.

        The replay keeps the environment's rewards: a bonus fades, so it is computed when an unroll
        is sampled, and once more for its initial priority.
        """

        def __init__(self, *args: Any):
            super().__init__(*args)
            self.rnd = RND(from_flags(RNDConfig), self.specs)

        def initial_priorities(self, unrolls: Unroll) -> tf.Tensor:
            return super().initial_priorities(self._with_bonus(unrolls))

        def loss(self, batch: Any) -> StepResult:
            result = super().loss(batch._replace(unrolls=self._with_bonus(batch.unrolls)))
            rnd_loss = self.rnd.loss(batch.unrolls.env_outputs)
            return result._replace(
                loss=result.loss + rnd_loss, metrics={**result.metrics, "losses/rnd": rnd_loss}
            )

        def trainable_variables(self) -> list[Any]:
            return super().trainable_variables() + self.rnd.trainable()

        def checkpointables(self) -> dict[str, Any]:
            return {**super().checkpointables(), "rnd": self.rnd}

        def _with_bonus(self, unrolls: Unroll) -> Unroll:
            return unrolls._replace(env_outputs=self.rnd.with_bonus(unrolls.env_outputs))

    return RNDR2D2


if __name__ == "__main__":
    program.main(
        r2d2_main.FAMILY,
        algorithm=algorithm,
        agent_configs=(QNetworkConfig, RNDConfig),
        presets=(r2d2_main.PRESET,),
    )
