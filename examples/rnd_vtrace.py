"""V-trace with an exploration bonus, on any Gymnasium environment. Learner and actor:

python -m examples.rnd_vtrace --run_mode=learner --num_envs=8
python -m examples.rnd_vtrace --run_mode=actor --num_envs=8 --env_batch_size=8
"""

from __future__ import annotations

from typing import Any

from examples.rnd_config import RNDConfig
from seed_rl.agents.vtrace import program
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.gym import vtrace_main


def algorithm() -> type:
    """The algorithm; TensorFlow is imported here, because actors do without it."""
    from examples.with_rnd import WithRND
    from seed_rl.agents.vtrace.algorithm import VTrace
    from seed_rl.common.learner.algorithm import StepResult

    class RNDVTrace(WithRND, VTrace):
        """V-trace with a bonus for observations not seen before."""

        def loss(self, batch: Any) -> StepResult:
            return self.with_rnd_loss(super().loss(batch), batch.env_outputs)

    return RNDVTrace


if __name__ == "__main__":
    program.main(
        vtrace_main.FAMILY,
        algorithm=algorithm,
        agent_configs=(MLPNetworkConfig, ConvNetworkConfig, RNDConfig),
        presets=(vtrace_main.PRESET,),
    )
