"""Facade: names of the original.

Each is imported on first access, so that environments and actors that need only a tuple do not
import TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any

# By name: its module, and `:name` if it has another one there.
_HOMES = {
    "EnvOutput": "seed_rl.common.types",
    "init_learner": "seed_rl.compat.devices",
    "init_learner_multi_host": "seed_rl.compat.devices",
    "Settings": "seed_rl.compat.devices",
    "MultiHostSettings": "seed_rl.compat.devices",
    "UnrollStore": "seed_rl.compat.unroll_store",
    "PrioritizedReplay": "seed_rl.compat.replay_store:ReplayStore",
    "HindsightExperienceReplay": "seed_rl.compat.replay_store:HindsightReplayStore",
    "Aggregator": "seed_rl.compat.tensor_stores",
    "StructuredFIFOQueue": "seed_rl.compat.tensor_stores",
    "ProgressLogger": "seed_rl.compat.progress_logger",
    "batch_apply": "seed_rl.common.networks.layers",
    "make_time_major": "seed_rl.compat.tensors",
    "split_structure": "seed_rl.compat.tensors",
    "TPUEncodedUInt8": "seed_rl.compat.devices",
    "tpu_encode": "seed_rl.compat.devices",
    "tpu_decode": "seed_rl.compat.devices",
    "tensor_spec_from_gym_space": "seed_rl.common.inference.env_specs",
    "get_non_dying_envs": "seed_rl.compat.tensor_stores",
    "validate_learner_config": "seed_rl.compat.shared_config",
    "config_from_flags": "seed_rl.compat.shared_config",
    "serialize_config": "seed_rl.compat.shared_config",
    "update_config": "seed_rl.compat.shared_config",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own_name = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), own_name or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
