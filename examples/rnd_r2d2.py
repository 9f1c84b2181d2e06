"""R2D2 with an exploration bonus, on any Gymnasium environment. Learner and actor:

python -m examples.rnd_r2d2 --run_mode=learner --num_envs=8
python -m examples.rnd_r2d2 --run_mode=actor --num_envs=8 --env_batch_size=8
"""

from __future__ import annotations

from typing import Any

from examples.rnd_config import RNDConfig
from seed_rl.agents.r2d2 import program
from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.gym import r2d2_main


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    from examples.with_rnd import WithRND
    from seed_rl.agents.r2d2.algorithm import R2D2
    from seed_rl.common.learner.algorithm import StepResult

    class RNDR2D2(WithRND, R2D2):
        """R2D2 with a bonus for observations not seen before.

        The replay keeps the environment's rewards: a bonus fades, so it is computed when an unroll
        is sampled, and once more for its initial priority.
        """

        def loss(self, batch: Any) -> StepResult:
            return self.with_rnd_loss(super().loss(batch), batch.unrolls.env_outputs)

    return RNDR2D2


if __name__ == "__main__":
    program.main(
        r2d2_main.FAMILY,
        algorithm=algorithm,
        agent_configs=(QNetworkConfig, RNDConfig),
        presets=(r2d2_main.PRESET,),
    )
