"""The options of a run as one object, as existing programs pass them to the learner."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeVar

from seed_rl.agents.policy_gradient.config import MinibatchSettings, OnPolicyConfig, step_sizes
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig, check_training_envs
from seed_rl.common.config.run_config import RunConfig

__all__ = ["InferenceReturn", "TrainingConfig"]

T = TypeVar("T")


class InferenceReturn(enum.IntEnum):
    """What a program's own inference functions answer; the program defines the members.

    There are none here: this package's inference returns actions, and refuses calls with errors.
    """


@dataclasses.dataclass(frozen=True)
class TrainingConfig(OnPolicyConfig, MinibatchSettings, LearnerConfig, RunConfig, DeviceConfig):
    """All options that are flags of the on-policy agent, by the names of the flags."""

    def num_training_envs(self) -> int:
        """Environments that are trained on."""
        return self.training_envs

    def is_training_env(self, env_id: Any) -> Any:
        """Whether environments <int>[...] are trained on, <bool>[...]."""
        return env_id < self.num_training_envs()

    def part(self, cls: type[T], **changes: Any) -> T:
        """The options of one of the base classes, with `changes`."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return cls(**{**{field.name: getattr(self, field.name) for field in fields}, **changes})

    def with_sizes(self) -> TrainingConfig:
        """The same run, with its sizes in unrolls: `unroll_length` and `batches_per_step` take the
        place of sizes in transitions.

        Raises:
          UserError: the sizes do not divide each other, or exclude each other; or no environment
            is left to train on.
        """
        check_training_envs(self)
        settings = self.part(MinibatchSettings)
        sizes = step_sizes(self, settings, self.unroll_length, self.training_envs)
        return dataclasses.replace(
            self,
            unroll_length=sizes.unroll_length,
            batches_per_step=sizes.minibatches.batches_per_step,
            step_size_transitions=None,
            batch_size_transitions=None,
        )
