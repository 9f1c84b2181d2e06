"""A program that is a learner or one of its actors, whatever the agent and the environment.

No TensorFlow is imported here: actors must be small and quick to start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from seed_rl.common import actor, config, logdirs, saved_run
from seed_rl.common.device_config import DeviceConfig
from seed_rl.common.game import Game
from seed_rl.common.learner_config import LearnerConfig
from seed_rl.common.optimizer import OptimizerConfig
from seed_rl.common.run_config import ACTOR, RunConfig


def main(
    game: Game,
    agent_configs: Sequence[type],
    learn: Callable[[Any], None],
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      game: the environments.
      agent_configs: dataclasses of options of the agent to define flags for.
      learn: `learn(env_config)` runs the learner with the options of the flags. Import TensorFlow
        inside of it.
      **defaults: defaults of options that differ for this program.
    """
    config.define_flags(
        RunConfig,
        actor.ActorConfig,
        game.config,
        *agent_configs,
        OptimizerConfig,
        LearnerConfig,
        DeviceConfig,
        **defaults,
    )

    def run() -> None:
        env_config: Any = config.from_flags(game.config)
        if config.from_flags(RunConfig).required_mode() != ACTOR:
            learn(env_config)
            return
        actor.actor_loop(
            game.create,
            config.from_flags(actor.ActorConfig),
            env_config,
            create_vector_env_fn=game.create_batch,
        )

    config.run_main(run, lambda: _prepare(game))


def _prepare(game: Game) -> None:
    """Names the directory of the run after the environment, unless a name was given.

    With --only_check_args, prints what `./run_local.sh` wants to know before it starts the program.
    """
    known: Any = flags.FLAGS["logdir"]
    if game.environment and not known.present and known.default == RunConfig().logdir:
        known.value = logdirs.default(str(flags.FLAGS[game.environment].value))
    if flags.FLAGS.only_check_args:
        config.from_flags(RunConfig)
        logdir = flags.FLAGS.logdir
        identity = config.environment_identity(config.from_flags(game.config))
        print(json.dumps({"logdir": logdir, "refusal": saved_run.refusal(logdir, identity)}))
