"""A trained policy that acts in Gymnasium environments, step by step."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from seed_rl.common import nest
from seed_rl.common.errors import UserError
from seed_rl.common.inference.saved_model import Act
from seed_rl.common.nest import Nest
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.system import files
from seed_rl.common.types import EnvOutput, Specs


class ActingState(NamedTuple):
    """The state of a policy between steps.

    Attributes:
      agent_state: nest of tensors [envs, ...], the recurrent state.
      actions: nest of tensors [envs, ...], the last actions.
      steps: <int32>[envs] steps since each environment's reset.
      batched: whether observations and actions have a batch dimension.
    """

    agent_state: Nest
    actions: Nest
    steps: np.ndarray
    batched: bool


class ActingPolicy:
    """Chooses actions for one environment, or for several at once.

        observation, _ = env.reset()
        state, reward, over = policy.initial_state(), 0.0, False
        while not over:
            action, state = policy(observation, state, reward)
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated

    Attributes:
      specs: of one environment, as in training.
    """

    def __init__(self, act: Act, initial_state: Callable[[int], Nest], specs: Specs):
        """Use `load_policy` or `trained_policy`.

        Args:
          act: chooses actions, see `saved_model.save_model`.
          initial_state: of a batch of the given size.
          specs: specs of one environment.
        """
        self.specs = specs
        self._act = act
        self._initial_state = initial_state

    def initial_state(self, num_envs: int | None = None) -> ActingState:
        """The state before the first step of an episode.

        Args:
          num_envs: size of the batches of observations and actions; None: a single environment,
            and no batch dimension.
        """
        size = 1 if num_envs is None else num_envs
        actions = tf.nest.map_structure(
            lambda spec: tf.zeros([size, *spec.shape], spec.dtype), self.specs.action
        )
        steps = np.zeros(size, np.int32)
        return ActingState(self._initial_state(size), actions, steps, num_envs is not None)

    def __call__(
        self, observation: Nest, state: ActingState, reward: Any, done: Any = False
    ) -> tuple[Nest, ActingState]:
        """Chooses the next action.

        Args:
          observation: as the environment returned it, wrapped as in training
            (`env_wrappers.wrap_for_agent` for those of `seed_rl.gym`); with a batch dimension if
            `state` has one.
          state: from `initial_state` or the last call.
          reward: of the last action, <float32>[] or [envs]; 0 before the first. Networks may
            read it.
          done: <bool>[] or [envs], whether `observation` is the first of a new episode. Not needed
            if each episode begins with `initial_state`.

        Returns:
          (action, state): a nest of arrays, without a batch dimension if the state has none; and
          the state for the next call.

        Raises:
          UserError: the observation is not like those in training.
        """
        size = len(state.steps)
        rows = np.broadcast_to(np.asarray(done, np.bool_), [size])
        env_outputs = EnvOutput(
            reward=tf.constant(np.broadcast_to(np.asarray(reward, np.float32), [size])),
            done=tf.constant(rows),
            observation=self._observations(observation, state),
            abandoned=tf.zeros([size], tf.bool),
            episode_step=tf.constant(np.where(rows, 0, state.steps), tf.int32),
        )
        actions, state = self.act(env_outputs, state)
        return actions if state.batched else nest.map_structure(lambda a: a[0], actions), state

    def act(self, env_outputs: EnvOutput, state: ActingState) -> tuple[Nest, ActingState]:
        """Like a call, but takes what an actor reports.

        Args:
          env_outputs: nest of arrays or tensors [envs, ...], not checked.
          state: from `initial_state` or the last call.

        Returns:
          (nest of arrays [envs, ...], the state for the next call).
        """
        actions, agent_state = self._act(state.actions, env_outputs, state.agent_state)
        steps = np.asarray(env_outputs.episode_step) + 1
        chosen = nest.map_structure(lambda t: t.numpy(), actions)
        return chosen, ActingState(agent_state, actions, steps, state.batched)

    def _observations(self, observation: Nest, state: ActingState) -> Nest:
        size, specs = len(state.steps), self.specs.env_output.observation

        def batch(spec: tf.TensorSpec, value: Any) -> tf.Tensor:
            array = np.asarray(value)
            array = array if state.batched else array[None]
            if array.shape != (size, *spec.shape) or not _holds(spec.dtype, array):
                raise ValueError
            return tf.constant(array.astype(spec.dtype.as_numpy_dtype))

        try:
            if isinstance(specs, tf.TensorSpec):  # Otherwise a list of numbers would be a nest.
                observation = np.asarray(observation)
            return nest.map_structure(batch, specs, observation)
        except ValueError:
            batched = [size] if state.batched else []
            expected = nest.map_structure(lambda s: f"{s.dtype.name}{[*batched, *s.shape]}", specs)
            given = nest.map_structure(_described, observation)
            raise UserError(
                f"The policy expects observations {expected}, not {given}. Wrap the environment as "
                "in training (seed_rl.common.acting.env_wrappers.wrap_for_agent), and call "
                "`initial_state` with the number of environments if they are in a batch."
            ) from None


def _holds(dtype: tf.DType, array: np.ndarray) -> bool:
    """Whether a type can hold the values of an array, as uint8 can those of an int8 mask."""
    wanted = np.dtype(dtype.as_numpy_dtype)
    if np.can_cast(array.dtype, wanted, "same_kind"):
        return True
    whole = array.dtype.kind in "iu" and wanted.kind in "iu"
    return whole and np.array_equal(array, array.astype(wanted))


def _described(value: Any) -> str:
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}"


def load_policy(path: str | os.PathLike[str]) -> ActingPolicy:
    """The policy that a learner exported at the end of its run; acts as in evaluation.

    Needs neither the code of its network nor that of its agent. Load only models that you trust.
    Logs a warning if the run has saved a newer checkpoint since.

    Args:
      path: a run's logdir, or the exported model in it.

    Raises:
      UserError: there is no exported model.
    """
    folder = files.expanded(path)
    if not (folder / "saved_model.pb").exists():
        folder = folder / checkpoint_list.MODEL
    if not (folder / "saved_model.pb").exists():
        raise UserError(
            f"There is no exported model in {path}; a learner writes it at the end of a run unless "
            "--save_model is off. For a checkpoint, create the run's job and call "
            "`seed_rl.experiment.trained_policy(job, path)`."
        )
    if frames := checkpoint_list.newer_than_model(folder):
        logging.warning(
            "The model in %s is older than the newest checkpoint, of %d frames: a learner exports "
            "it when it ends or is stopped (unless --save_model is off). Stop the run, after "
            "resuming it if it died.",
            folder,
            frames,
        )
    model: Any = tf.saved_model.load(os.fspath(folder))
    (action, env_output, _), _ = model.act.concrete_functions[0].structured_input_signature
    single = tf.nest.map_structure(
        lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), (action, env_output)
    )

    def act(actions: Nest, env_outputs: EnvOutput, agent_state: Nest) -> tuple[Nest, Nest]:
        chosen, state = model.act(actions, env_outputs._asdict(), agent_state)
        return chosen, state

    return ActingPolicy(
        act,
        lambda size: model.initial_state(tf.constant(size)),
        Specs(single[0], EnvOutput(**single[1])),
    )
