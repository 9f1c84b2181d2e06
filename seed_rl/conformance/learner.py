"""The learner that conformance plays: a real server and store, a script instead of a network."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

from seed_rl.common import nest
from seed_rl.common.acting import action_masks, spaces
from seed_rl.common.types import ACTION_SPACE, EnvOutput, Spaces
from seed_rl.conformance.rules import CartPole, Environment, Row, Violation

ENV_IDS = (2, 3)
"""The environments of the client under test: those of the second of two actors."""

CART_POLE = Spaces(
    gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32), gymnasium.spaces.Discrete(2)
)

_SILENCE = np.array([0, 0, np.nan, np.nan])  # The client's environments are free.
_OTHER_LIFE = 7  # Run id of an actor that takes the environments over.


class Process(Protocol):
    """What the learner needs to know of the client."""

    def exit_code(self) -> int | None:
        """The exit code of the process, if it has ended."""


@dataclasses.dataclass(frozen=True)
class Part:
    """How a learner differs from one that fits the client.

    Attributes:
      token: its secret.
      num_envs: number of environments.
      observations: the space of observations; None: the client's.
      actions: the space that the learner describes; None: the client's.
      protocol: number of the protocol; 0: the current one.
      argument: name of an additional argument of `inference` that the learner describes; "": none.
    """

    token: str = "right"
    num_envs: int = 4
    observations: gymnasium.Space[Any] | None = None
    actions: gymnasium.Space[Any] | None = None
    protocol: int = 0
    argument: str = ""


class Learner:
    """A server with an inference store, whose actions a script chooses; a context manager.

    Attributes:
      address: where it listens.
      environments: those of the client, by id.
      balances: whether to choose actions that keep the pole up; otherwise it falls.
      pause_s: time before the next answer.
    """

    def __init__(self, address: str, part: Part, of: Spaces | None = None, **options: Any):
        """Starts serving.

        Args:
          address: where to listen.
          part: what it does wrong.
          of: the spaces of the client's environments; None: they are CartPole.
          **options: `ServerOptions`.
        """
        import tensorflow as tf  # Slow: mistakes in flags are reported before.

        from seed_rl.common.inference import env_specs
        from seed_rl.common.inference.env_claims import EnvClaims
        from seed_rl.common.inference.inference_store import InferenceStore
        from seed_rl.common.types import Step
        from seed_rl.grpc import ops
        from seed_rl.grpc.channel_options import ServerOptions

        class Server(ops.Server):
            def description(self) -> dict[str, Any]:
                text = super().description()
                if part.argument:
                    tensor = {"name": part.argument, "dtype": "float32", "shape": [None]}
                    text["functions"][0]["arguments"]["tuple"].append({"tensor": tensor})
                return {**text, "protocol": part.protocol or text["protocol"]}

        checks = Environment if of else CartPole
        self.environments: dict[int, Environment] = {env_id: checks(env_id) for env_id in ENV_IDS}
        self.balances, self.pause_s = False, 0.0
        self._failing: set[int] = set()  # Run ids of lives whose calls fail.
        self._violation = ""
        self._changed = threading.Condition()
        own = of or CART_POLE
        self._spaces = own
        self._random = np.random.default_rng(1)
        specs = env_specs.specs(part.observations or own.observation, own.action)
        self._store = store = InferenceStore(
            num_envs=part.num_envs,
            num_training_envs=part.num_envs,
            unroll_length=1000,
            num_overlapping_steps=0,
            queue_capacity=10_000,  # Nobody takes the unrolls.
            action_specs=specs.action,
            initial_state=(),
            step_specs=Step(specs.action, specs.env_output, ()),
        )

        @tf.function(input_signature=env_specs.call_signature(specs), autograph=False)
        def inference(env_ids: Any, run_ids: Any, outputs: Any, raw: Any, successes: Any) -> Any:
            prev_actions, state = store.begin(env_ids, run_ids, outputs, raw, successes)
            with tf.control_dependencies(tf.nest.flatten(prev_actions)):
                inputs = [env_ids, run_ids, *tf.nest.flatten(outputs), raw, successes]
                dtypes = [spec.dtype for spec in tf.nest.flatten(specs.action)]
                leaves = tf.numpy_function(self._act, inputs, dtypes)
            actions = tf.nest.map_structure(
                lambda spec, leaf: tf.ensure_shape(leaf, [None, *spec.shape]),
                specs.action,
                tf.nest.pack_sequence_as(specs.action, leaves),
            )
            store.end(env_ids, run_ids, actions, state, Step(prev_actions, outputs, ()))
            return actions

        self._inference = inference
        self._specs = specs
        self._server = Server([address], ServerOptions(token=part.token, **options))
        self._server.bind(inference, isolate_errors=True)
        self._server.bind(EnvClaims(lambda: _SILENCE, lease_s=0.0).function())
        self._server.set_status({ACTION_SPACE: spaces.describe(part.actions or own.action)})
        self._server.start()
        host, _, port = address.rpartition(":")
        self.address = f"{host}:{self._server.ports[0]}" if port == "0" else address

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._store.close()
        self._server.shutdown()

    def _act(self, env_ids: np.ndarray, run_ids: np.ndarray, *inputs: np.ndarray) -> list[Any]:
        """Chooses actions, leaves [batch, ...]; runs on the server's threads."""
        time.sleep(self.pause_s)
        self.pause_s = 0.0
        if not self._failing.isdisjoint(run_ids.tolist()):
            raise RuntimeError("This call fails on purpose, as part of the test.")
        *leaves, raw_rewards, successes = inputs
        outputs = nest.pack_sequence_as(self._specs.env_output, leaves)
        if _OTHER_LIFE in run_ids:
            return self._leaves([self._spaces.action.sample() for _ in env_ids])
        actions = self._choose(outputs.observation, len(env_ids))
        with self._changed:
            try:
                for i, env_id in enumerate(env_ids):
                    row = nest.map_structure(lambda leaf, i=i: leaf[i].copy(), outputs)
                    self._report(
                        int(env_id), int(run_ids[i]), row, raw_rewards[i], successes[i], actions[i]
                    )
            except Violation as error:
                self._violation = self._violation or str(error)
            self._changed.notify_all()
        return self._leaves(actions)

    def _choose(self, observations: Any, size: int) -> list[Any]:
        """Random actions of the space, of those that masks allow; in CartPole always the same one,
        or the one that balances.
        """
        action_space = self._spaces.action
        if self._spaces is CART_POLE:
            fall = np.ones(size, np.int64)
            stay = (observations @ [0.1, 0.3, 3.0, 1.0] > 0).astype(np.int64)
            return list(stay if self.balances else fall)
        if action_masks.is_masked(self._spaces.observation) and action_masks.choices(action_space):
            mask = observations[action_masks.KEY].astype(np.float32)
            return list(action_masks.allowed_actions(action_space, mask, self._random))
        return [action_space.sample() for _ in range(size)]

    def _leaves(self, actions: list[Any]) -> list[Any]:
        """The tensors of a batch of actions."""
        flat = [
            nest.flatten(nest.map_structure(lambda _, a: a, self._specs.action, action))
            for action in actions
        ]
        specs = nest.flatten(self._specs.action)
        return [
            np.stack(leaf).astype(spec.dtype.as_numpy_dtype)
            for spec, leaf in zip(specs, zip(*flat, strict=True), strict=True)
        ]

    def _report(
        self, env_id: int, run_id: int, row: EnvOutput, raw: Any, success: Any, action: Any
    ) -> None:
        if env_id not in self.environments:
            raise Violation(f"environment {env_id} is not one of {ENV_IDS}")
        self.environments[env_id].report(
            Row(
                run_id,
                float(row.reward),
                bool(row.done),
                row.observation,
                bool(row.abandoned),
                int(row.episode_step),
                float(raw),
                float(success),
            ),
            action,
        )

    def wait(
        self,
        reached: Callable[[Environment], bool],
        what: str,
        timeout_s: float,
        client: Process | None,
    ) -> None:
        """Waits until all environments of the client have reached something.

        Raises:
          Violation: the client broke a rule, ended, or did not get there in time.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not all(map(reached, self.environments.values())) and not self._violation:
                self._changed.wait(0.2)
                if client and (code := client.exit_code()) is not None:
                    raise Violation(f"exits with {code} instead of continuing ({what})")
                if time.monotonic() > deadline:
                    raise Violation(f"no {what} within {timeout_s:g} s")
        self.check()

    def check(self) -> None:
        """Raises `Violation` if the client has broken a rule."""
        if self._violation:
            raise Violation(self._violation)

    def fail(self) -> None:
        """Answers all further calls of the lives so far with an error.

        Not just the next: the server tries the calls of a batch that failed again, one by one.
        """
        self._failing = self.run_ids

    def restart(self, away_s: float) -> None:
        """Closes the server, and starts it again after a while."""
        self._server.shutdown()
        time.sleep(away_s)
        self._server.start()

    @property
    def claims(self) -> int:
        """How often environments were asked for."""
        return self._server.stats()["functions"]["claim"]["calls"]

    @property
    def run_ids(self) -> set[int]:
        """Of all lives so far."""
        return {life for environment in self.environments.values() for life in environment.lives}

    def finish(self) -> None:
        """Answers all further calls with "training is done"."""
        self._store.close(done=True)

    def take_over(self) -> None:
        """Acts as another actor that begins a life in the client's environments."""
        size = len(ENV_IDS)
        zeros, false = np.zeros(size, np.float32), np.zeros(size, np.bool_)
        nothing = nest.map_structure(
            lambda s: np.zeros((size, *s.shape), s.dtype.as_numpy_dtype),
            self._specs.env_output.observation,
        )
        first = EnvOutput(zeros, false, nothing, false, zeros.astype("i4"))
        self._inference(
            np.array(ENV_IDS, np.int32), np.full(size, _OTHER_LIFE, np.int64), first, zeros, zeros
        )
