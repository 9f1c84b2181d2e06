"""V-trace with an exploration bonus, on any Gymnasium environment. Learner and actor:

python -m examples.rnd_vtrace --run_mode=learner --num_envs=8
python -m examples.rnd_vtrace --run_mode=actor --num_envs=8 --env_batch_size=8
"""

from __future__ import annotations

from typing import Any

from examples.rnd_config import RNDConfig
from seed_rl.agents.vtrace import program
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.config.options import from_flags
from seed_rl.gym import vtrace_main


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    import tensorflow as tf

    from examples.rnd import RND
    from seed_rl.agents.vtrace.algorithm import VTrace
    from seed_rl.common.learner.algorithm import StepResult
    from seed_rl.common.types import EnvOutput

    class RNDVTrace(VTrace):
        """V-trace with a bonus for observations not seen before."""

        def __init__(self, *args: Any):
            super().__init__(*args)
            assert self.specs is not None  # `create_job` provides them.
            self.rnd = RND(from_flags(RNDConfig), self.specs)

        def learning_rewards(self, env_outputs: EnvOutput) -> tf.Tensor:
            return env_outputs.reward + self.rnd.bonus(env_outputs)

        def loss(self, batch: Any) -> StepResult:
            result = super().loss(batch)
            rnd_loss = self.rnd.loss(batch.env_outputs)
            return result._replace(
                loss=result.loss + rnd_loss, metrics={**result.metrics, "losses/rnd": rnd_loss}
            )

        def trainable_variables(self) -> list[Any]:
            return super().trainable_variables() + self.rnd.trainable()

        def clipped_apart(self) -> list[Any]:
            return super().clipped_apart() + self.rnd.trainable()

        def checkpointables(self) -> dict[str, Any]:
            return {**super().checkpointables(), "rnd": self.rnd}

    return RNDVTrace


if __name__ == "__main__":
    program.main(
        vtrace_main.FAMILY,
        vtrace_main.create_agent,
        algorithm=algorithm,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig, RNDConfig),
        presets=(vtrace_main.PRESET,),
    )
