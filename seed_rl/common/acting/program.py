"""Main programs of agents: each is a learner or one of its actors, for any environment."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from seed_rl.common.acting import actor
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.callbacks import Callback
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


@dataclasses.dataclass(frozen=True)
class AgentProgram:
    """Learners and actors of one agent, for any environment.

    Attributes:
      name: of the agent. `--agent` may repeat it; the program of another agent then fails.
      create_job: the module with the agent's `create_job`, or a function that returns one; imported
        or called only in the learner, because such modules import TensorFlow.
      configs: its dataclasses of options, except for those of networks.
      create_agent: returns the network, unless a program has its own.
      network_configs: dataclasses of options of `create_agent`.
      presets: the agent's own defaults.
      check: refuses contradictory flags of a learner, before anything starts; None: creating the
        dataclasses does.
      instead: by the names of flags that the agent lacks, what to write instead.
    """

    name: str
    create_job: str | Callable[[], Callable[..., Any]]
    configs: tuple[type, ...]
    create_agent: Callable[..., Any]
    network_configs: tuple[type, ...]
    presets: tuple[Preset, ...] = ()
    check: Callable[[], object] | None = None
    instead: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def main(
        self,
        family: EnvironmentFamily,
        create_agent: Callable[..., Any] | None = None,
        create_optimizer: Callable[[int], Any] | None = None,
        algorithm: Callable[[], type] | None = None,
        agent_configs: tuple[type, ...] | None = None,
        presets: Sequence[Preset] = (),
        argv: Sequence[str] | None = None,
        callbacks: Sequence[Callback] = (),
        **defaults: Any,
    ) -> None:
        """Parses flags and runs; does not return.

        The value of an option is set by the last of: its dataclass, the agent's presets, `presets`
        in order, `defaults`, and the command line, where a flag file counts as what it contains.

        Args:
          family: the environments.
          create_agent: `create_agent(action_space, observation_space,
            parametric_action_distribution)` returns the network; by default the agent's own,
            with the options of `network_configs`. Called only in the learner, so it should import
            TensorFlow itself.
          create_optimizer: `create_optimizer(final_iteration)` returns (optimizer,
            learning_rate_fn); by default, the flags of `OptimizerConfig` configure one.
          algorithm: returns the agent's `Algorithm` or a subclass with the same constructor
            arguments. Called only in the learner, so it should import TensorFlow itself.
          agent_configs: dataclasses of options of `create_agent` and `algorithm`; None: those of
            the agent's own network, if it is used.
          presets: defaults that replace those of the dataclasses and of the agent.
          argv: name of the program, then flags; None: the command line.
          callbacks: called in the learner; actors also create them, so they should begin their work
            in `on_start`.
          **defaults: further defaults of this program.
        """
        create_agent = create_agent or self.create_agent
        if agent_configs is None:
            agent_configs = self.network_configs if create_agent is self.create_agent else ()
        classes = (
            *(RunConfig, actor.ActorConfig, family.config, LearnerConfig, *self.configs),
            *(*agent_configs, OptimizerConfig, DeviceConfig),
        )
        # Presets may be meant for the agent's own network, which the program need not use.
        unused = _names(self.network_configs) - _names(classes)
        presets = [preset.without(unused) for preset in (*self.presets, *presets)]
        options.define_flags(*classes, presets=presets, **defaults)
        self._define_agent_flag(sys.argv if argv is None else argv)

        def run() -> None:
            env_config: Any = options.from_flags(family.config)
            if options.from_flags(RunConfig).required_mode() == ACTOR:
                _act(family, env_config)
                return
            family.prepare_tensorflow()
            home = self.create_job
            create_job = home() if callable(home) else importlib.import_module(home).create_job
            create_job(
                family.create,
                create_agent,
                create_optimizer,
                env_config=env_config,
                callbacks=callbacks,
                **({"algorithm": algorithm()} if algorithm else {}),
            ).execute()

        def check() -> None:
            for config in (*self.configs, *agent_configs):
                options.from_flags(config)

        options.run_main(run, lambda: _prepare(family, self.check or check), argv, self.instead)

    def _define_agent_flag(self, argv: Sequence[str]) -> None:
        if _AGENT in flags.FLAGS:
            return
        given = any(re.match(f"--?{_AGENT}(=|$)", flag) for flag in argv)
        text = "The agent to train; in programs with several agents, selects one of them."
        # Under one of absl's headings, a flag is left out of the run's record. To play a run that
        # was started with --agent, pass it again.
        heading = "Program" if given else "absl.agent"
        flags.DEFINE_enum(_AGENT, self.name, [self.name], text, module_name=heading)


def _names(classes: Sequence[type]) -> set[str]:
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


def _act(family: EnvironmentFamily, env_config: Any) -> None:
    """Runs the actor that the flags describe."""
    config = options.from_flags(actor.ActorConfig)
    seed = options.from_flags(DeviceConfig).own_seed(config.seed)
    actor.actor_loop(
        family.create,
        dataclasses.replace(config, seed=seed),
        env_config,
        create_batch=family.create_batch,
    )


def _prepare(family: EnvironmentFamily, check: Callable[[], object]) -> None:
    """Sets the flags that the user has not typed, and refuses action repeats without effect.

    Unless --logdir is given, the run's directory is named after the environment, and after the
    agent if --agent selects one. If a run is saved there, a learner keeps its options. Actors,
    which may not see the directory, ask the learner for those of the environment.

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
    continuation: Callable[[], Mapping[str, Any]], check: Callable[[], object] | None = None
) -> None:
    """Prints what `./run_local.sh` asks a program for with --only_check_args.

    Args:
      continuation: see `_continuation`; a `refusal` is enough.
      check: see `AgentProgram`.

    Raises:
      UserError: the flags are invalid.
    """
    run = options.from_flags(RunConfig)
    if run.run_mode != ACTOR:
        run.check_exposure()
    logdirs.check(run.logdir)
    answer = {"logdir": run.logdir, **continuation()}
    # The current value: a saved run's options have been adopted.
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
      kept: options of that run that would otherwise have other values now.
      changed: options that differ from those of that run, each with both values.
      environment: those of the environment's options that are kept, as flags for actors.
    """
    logdir = flags.FLAGS.logdir
    answer: dict[str, Any] = {"refusal": None, "kept": [], "changed": [], "environment": []}
    options.from_flags(family.config)  # A wrong flag is an error, whatever the saved run is.
    try:
        saved = saved_run.record(logdir)
        # Refuses the options of another program.
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
