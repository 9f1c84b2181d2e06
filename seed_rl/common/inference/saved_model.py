"""Exports a policy as a SavedModel, which needs TensorFlow but not this package."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Specs

Act = Callable[[Nest, EnvOutput, Nest], tuple[Nest, Nest]]


def save_model(
    directory: str | os.PathLike[str], network: tf.Module, specs: Specs, act: Act
) -> Path | None:
    """Exports a policy; an existing model is replaced once the new one is complete.

    `tf.saved_model.load(directory)` returns an object with

        initial_state(batch_size <int32>[]) -> agent_state
        act(prev_actions, env_outputs, agent_state) -> (actions, agent_state)

    whose arguments and results are nests of [batch, ...]. `env_outputs` is a dictionary with the
    fields of `EnvOutput`. For programs without nests, the signatures "serving_default" and
    "initial_state" do the same with one named tensor per leaf: `prev_action`, `reward`, `done`,
    `observation`, `abandoned`, `episode_step`, `agent_state` and `action`, with the key or index
    appended where there are several (`observation_position`, `agent_state_0`).

    Args:
      directory: directory to write.
      network: the trained network; its variables must exist.
      specs: specs of one environment.
      act: chooses actions: `act(prev_actions, env_outputs, agent_state)` returns (actions,
        agent_state).

    Returns:
      The directory; None, after a logged warning, if it could not be written.
    """
    directory = Path(directory)
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}.saving")
    replaced = directory.with_name(f".{directory.name}.{os.getpid()}.replaced")
    module = _export(network, specs, act)
    try:
        with _without_information(tf.get_logger()):
            tf.saved_model.save(module, os.fspath(temporary), _signatures(module))
        if directory.exists():
            directory.rename(replaced)
        temporary.rename(directory)
    except (OSError, tf.errors.OpError) as error:
        logging.warning("Cannot export the model to %s: %s", directory, str(error).split("\n")[0])
        if replaced.exists() and not directory.exists():
            replaced.rename(directory)
        return None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return directory


@contextlib.contextmanager
def _without_information(logger: logging.Logger) -> Iterator[None]:
    """Suppresses messages below warnings; in a notebook, TensorFlow prints each line twice."""

    def important(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    logger.addFilter(important)
    try:
        yield
    finally:
        logger.removeFilter(important)


def _export(network: Any, specs: Specs, act: Act) -> tf.Module:
    def batched(nest: Nest) -> Nest:
        return tf.nest.map_structure(
            lambda s: tf.TensorSpec([None, *s.shape], s.dtype, s.name), nest
        )

    state_specs = tf.nest.map_structure(
        lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), network.initial_state(1)
    )
    # A dictionary, because programs that load the model may not have our named tuple.
    env_output_specs = dict(batched(specs.env_output)._asdict())

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "batch_size")], autograph=False)
    def initial_state(batch_size: tf.Tensor) -> Nest:
        return network.initial_state(batch_size)

    @tf.function(
        input_signature=[batched(specs.action), env_output_specs, state_specs], autograph=False
    )
    def exported_act(
        prev_actions: Nest, env_outputs: dict[str, Nest], agent_state: Nest
    ) -> tuple[Nest, Nest]:
        return act(prev_actions, EnvOutput(**env_outputs), agent_state)

    module = tf.Module()
    module.network = network  # Tracks its variables.
    tracked = tf.train.TrackableView(network).descendants()
    # Keras' variables contain those of the function.
    handles = {id(node.handle) for node in tracked if hasattr(node, "handle")}
    used = exported_act.get_concrete_function().variables
    module.others = [variable for variable in used if id(variable.handle) not in handles]
    module.initial_state = initial_state
    module.act = exported_act
    return module


def _signatures(module: Any) -> dict[str, Any]:
    """`act` and `initial_state` with named tensors instead of nests."""
    (actions, env_outputs, state), _ = module.act.get_concrete_function().structured_input_signature
    nests = {"prev_action": actions, **env_outputs, "agent_state": state}
    specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in _named(nests).items()
    }

    def act(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tf.nest.pack_sequence_as(nests, [tensors[name] for name in _named(nests)])
        outputs = {name: inputs[name] for name in env_outputs}
        chosen, new_state = module.act(inputs["prev_action"], outputs, inputs["agent_state"])
        return _named({"action": chosen, "agent_state": new_state})

    def initial_state(batch_size: tf.Tensor) -> dict[str, tf.Tensor]:
        return _named({"agent_state": module.initial_state(batch_size)})

    signatures = {
        "serving_default": tf.function(act, autograph=False).get_concrete_function(**specs)
    }
    if tf.nest.flatten(state):  # A signature without outputs cannot be saved.
        size = tf.TensorSpec([], tf.int32, "batch_size")
        created = tf.function(initial_state, autograph=False)
        signatures["initial_state"] = created.get_concrete_function(size)
    return signatures


def _named(nests: Nest, name: str = "") -> dict[str, Any]:
    """The leaves of a nest in order, by their path."""
    if isinstance(nests, Mapping):
        children = [(str(key), nests[key]) for key in sorted(nests)]
    elif isinstance(nests, (list, tuple)):
        keys = getattr(nests, "_fields", range(len(nests)))
        children = [(str(key), child) for key, child in zip(keys, nests, strict=True)]
    else:
        return {re.sub(r"\W", "_", name): nests}
    leaves: dict[str, Any] = {}
    for key, child in children:
        for leaf, value in _named(child, f"{name}_{key}" if name else key).items():
            leaves[leaf if leaf not in leaves else f"{leaf}_{len(leaves)}"] = value
    return leaves
