"""Main programs of agents, which differ in their options, their network and the job they train."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.common import remote_callbacks
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.callbacks import Callback
from seed_rl.common.config.presets import Preset


@dataclasses.dataclass(frozen=True)
class AgentProgram:
    """Learners and actors of one agent, for any environment.

    Attributes:
      name: of the agent.
      create_job: returns the agent's `create_job`; called only in the learner, so it imports
        TensorFlow itself.
      configs: its dataclasses of options, except for those of networks.
      create_agent: returns the network, unless a program has its own.
      network_configs: dataclasses of options of `create_agent`.
      presets: the agent's own defaults.
      check: refuses flags that contradict each other, before anything starts.
    """

    name: str
    create_job: Callable[[], Callable[..., Any]]
    configs: tuple[type, ...]
    create_agent: Callable[..., Any]
    network_configs: tuple[type, ...]
    presets: tuple[Preset, ...] = ()
    check: Callable[[], None] | None = None

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

        Args:
          family: the environments.
          create_agent: `create_agent(action_space, observation_space,
            parametric_action_distribution)` returns the network; see `network_configs` for the
            default's options. Called only in the learner, so it should import TensorFlow itself.
          create_optimizer: `create_optimizer(final_iteration)` returns (optimizer,
            learning_rate_fn); by default, the flags of `OptimizerConfig` configure one.
          algorithm: returns the agent's `Algorithm` or a subclass with the same constructor
            arguments. Called only in the learner, so it should import TensorFlow itself.
          agent_configs: dataclasses of options in place of `network_configs`.
          presets: defaults applied after those of the agent, in order.
          argv: name of the program, then flags; None: the command line.
          callbacks: called in the learner; actors create them, too, so they should start in
            `on_start`.
          **defaults: further defaults of this program, applied last.
        """
        create_agent = create_agent or self.create_agent

        def learn(env_config: Any) -> None:
            subclass = {"algorithm": algorithm()} if algorithm else {}
            create_job = self.create_job()
            caller = os.environ.get(remote_callbacks.ADDRESS)
            remote = [remote_callbacks.RemoteCallbacks(caller)] if caller else []
            create_job(
                family.create,
                create_agent,
                create_optimizer,
                env_config=env_config,
                callbacks=(*callbacks, *remote),
                **subclass,
            ).execute()

        further = self.network_configs if agent_configs is None else agent_configs
        program.main(
            family,
            (*self.configs, *further),
            learn,
            presets=(*self.presets, *presets),
            argv=argv,
            agent=self.name,
            check=self.check,
            **defaults,
        )
