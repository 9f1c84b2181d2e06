"""A program that is a learner or one of its actors, for any agent and environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from seed_rl.common.acting import actor
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config import logdirs, old_flags, options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.run_config import ACTOR, RunConfig
from seed_rl.common.run_files import saved_run

_AGENT = "agent"


def main(
    family: EnvironmentFamily,
    agent_configs: Sequence[type],
    learn: Callable[[Any], None],
    presets: Sequence[Preset] = (),
    optimizer: type | None = OptimizerConfig,
    argv: Sequence[str] | None = None,
    agent: str = "",
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    The value of an option is set by the last of: its dataclass, `presets` in order, `defaults`, and
    the command line, where a flag file counts as what it contains.

    Args:
      family: the environments.
      agent_configs: the agent's dataclasses of options.
      learn: `learn(env_config)` runs the learner with the options that the flags set. It should
        import TensorFlow itself: actors run this module too, and must be small and start quickly.
      presets: defaults that replace those of the dataclasses, usually of the agent, then of the
        agent on these environments.
      optimizer: dataclass of the optimizer's options; None: not set by flags.
      argv: name of the program, then flags; None: the command line.
      agent: its name, which --agent may repeat: a call for another agent then fails.
      **defaults: further defaults of this program.
    """
    options.define_flags(
        RunConfig,
        actor.ActorConfig,
        family.config,
        LearnerConfig,
        *agent_configs,
        *([optimizer] if optimizer else []),
        DeviceConfig,
        presets=presets,
        **defaults,
    )
    old_flags.provide()  # Scripts for the original start programs of the same names.
    if agent and _AGENT not in flags.FLAGS:
        given = any(f.lstrip("-").startswith(f"{_AGENT}=") for f in argv or sys.argv)
        text = "The agent to train; in programs with several, it chooses among them."
        # Under a heading of absl's, a flag stays out of the run's record. A run that was told the
        # agent must be told again, to be played.
        heading = "Program" if given else "absl.agent"
        flags.DEFINE_enum(_AGENT, agent, [agent], text, module_name=heading)

    def run() -> None:
        env_config: Any = options.from_flags(family.config)
        if options.from_flags(RunConfig).required_mode() != ACTOR:
            learn(env_config)
            return
        actor.actor_loop(
            family.create,
            options.from_flags(actor.ActorConfig),
            env_config,
            create_vector_env_fn=family.create_batch,
        )

    options.run_main(run, lambda: _prepare(family), argv)


def _prepare(family: EnvironmentFamily) -> None:
    """Names the run's directory after agent and environment, unless --logdir is given.

    After the agent, if --agent says which of the program's.

    With --only_check_args, prints what `./run_local.sh` needs before it starts the program.
    """
    known: Any = flags.FLAGS["logdir"]
    if not known.present and known.default == RunConfig().logdir:
        names = [_AGENT] if _AGENT in flags.FLAGS and flags.FLAGS[_AGENT].present else []
        names += [family.environment] if family.environment else []
        if names:
            known.value = logdirs.default("-".join(str(flags.FLAGS[name].value) for name in names))
    if flags.FLAGS.only_check_args:
        run = options.from_flags(RunConfig)
        if run.run_mode != ACTOR:
            run.check_exposure()
        logdir = flags.FLAGS.logdir
        logdirs.check(logdir)
        identity = options.environment_identity(options.from_flags(family.config))
        print(json.dumps({"logdir": logdir, "refusal": saved_run.refusal(logdir, identity)}))
