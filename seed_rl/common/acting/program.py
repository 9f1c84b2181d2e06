"""A program that is a learner or one of its actors, for any agent and environment."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from seed_rl.common.acting import actor
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config import flag_origins, learner_config, logdirs, options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.flag_definitions import SAVED_RUN
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.run_config import ACTOR, RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import saved_flags, saved_run

_AGENT, _FRAMES, _REPEATS = "agent", "total_environment_frames", "num_action_repeats"


def main(
    family: EnvironmentFamily,
    agent_configs: Sequence[type],
    learn: Callable[[Any], None],
    presets: Sequence[Preset] = (),
    optimizer: type | None = OptimizerConfig,
    argv: Sequence[str] | None = None,
    agent: str = "",
    instead: Mapping[str, str] | None = None,
    check: Callable[[], None] | None = None,
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
      instead: by names of flags that the program does not have, what to write instead.
      check: refuses flags of a learner that contradict each other, with --only_check_args.
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
    if agent and _AGENT not in flags.FLAGS:
        given = any(f.lstrip("-").startswith(f"{_AGENT}=") for f in argv or sys.argv)
        text = "The agent to train; in programs with several, it chooses among them."
        # Under a heading of absl's, a flag stays out of the run's record. To play a run that was
        # started with --agent, pass it again.
        heading = "Program" if given else "absl.agent"
        flags.DEFINE_enum(_AGENT, agent, [agent], text, module_name=heading)

    def run() -> None:
        env_config: Any = options.from_flags(family.config)
        if options.from_flags(RunConfig).required_mode() != ACTOR:
            learn(env_config)
            return
        config = options.from_flags(actor.ActorConfig)
        seed = options.from_flags(DeviceConfig).own_seed(config.seed)
        actor.actor_loop(
            family.create,
            dataclasses.replace(config, seed=seed),
            env_config,
            create_batch=family.create_batch,
        )

    options.run_main(run, lambda: _prepare(family, check), argv, instead)


def _prepare(family: EnvironmentFamily, check: Callable[[], None] | None) -> None:
    """Settles the flags that the user has not typed, and refuses action repeats without effect.

    Unless --logdir is given, the run's directory is named after the environment, and after the
    agent if --agent selects one. If a run is saved there, a learner keeps its options. Actors ask
    the learner for those of the environment: they may not see the directory.

    With --only_check_args, prints what `./run_local.sh` needs before it starts the program.
    """
    if _REPEATS not in {field.name for field in dataclasses.fields(family.config)}:
        options.refuse_unused(
            (_REPEATS,), f"{family.config.__name__} has no such option for the environments"
        )
    known: Any = flags.FLAGS["logdir"]
    if not known.present and known.default == RunConfig().logdir:
        names = [_AGENT] if _AGENT in flags.FLAGS and flags.FLAGS[_AGENT].present else []
        names += [family.environment] if family.environment else []
        if names:
            known.value = logdirs.default("-".join(str(flags.FLAGS[name].value) for name in names))
    learns = flags.FLAGS.run_mode != ACTOR
    if flags.FLAGS.only_check_args:
        if family.check:
            family.check(options.from_flags(family.config))
        answer_check(lambda: _continuation(family), check if learns else None)
    elif learns and flags.FLAGS.play_request:
        saved_flags.adopt_saved_run()
    elif learns:
        if refusal := _continuation(family)["refusal"]:
            raise UserError(refusal)


def answer_check(
    continuation: Callable[[], Mapping[str, Any]], check: Callable[[], None] | None = None
) -> None:
    """Prints what `./run_local.sh` asks a program for with --only_check_args.

    Args:
      continuation: see `_continuation`; a `refusal` is enough.
      check: see `main`.

    Raises:
      UserError: the flags are invalid.
    """
    run = options.from_flags(RunConfig)
    if run.run_mode != ACTOR:
        run.check_exposure()
    logdirs.check(run.logdir)
    answer = {"logdir": run.logdir, **continuation()}
    # As they are now that a saved run's options are adopted.
    if _FRAMES in flags.FLAGS:
        answer["frames"] = flags.FLAGS[_FRAMES].value
    devices = options.from_flags(DeviceConfig)
    size = options.flag_dictionary().get("batch_size") or 0  # 0: PPO chooses.
    devices.check_learners(size, run.insecure)
    learner_config.check_replicas(size, devices.training_devices.count(",") + 1)
    if check is not None and not answer["refusal"]:
        check()
    print(json.dumps(answer))


def _continuation(family: EnvironmentFamily) -> dict[str, Any]:
    """Adopts the options of the run saved in --logdir, if any.

    Returns:
      refusal: why it cannot be continued with the flags given; None if it can, or there is none.
      kept: options of that run which would have other values now.
      changed: options that differ from those of that run, each with both values.
      environment: what is kept of the environment's options, as flags for actors.
    """
    logdir = flags.FLAGS.logdir
    answer: dict[str, Any] = {"refusal": None, "kept": [], "changed": [], "environment": []}
    options.from_flags(family.config)  # A wrong flag matters whatever the saved run is.
    try:
        saved = saved_run.record(logdir)
        # Options of another program.
        answer["refusal"] = saved_run.refusal(logdir, {})
        if saved is None or answer["refusal"]:
            return answer
        answer["kept"] = saved_flags.adopt(saved)
        identity = options.environment_identity(options.from_flags(family.config))
    except UserError as error:
        return {**answer, "refusal": str(error)}
    if _AGENT in flags.FLAGS:
        identity[_AGENT] = flags.FLAGS[_AGENT].value
    now = options.flag_dictionary()
    answer["refusal"] = saved_run.refusal(logdir, identity, now, options.network_options())
    typed = {name: value for name, value in now.items() if flags.FLAGS[name].present}
    answer["changed"] = saved_run.changes(saved, typed)
    kept = [flags.FLAGS[name] for name in identity if flag_origins.origin(name) == SAVED_RUN]
    answer["environment"] = [flag.serialize() for flag in kept if flag.value is not None]
    return answer
