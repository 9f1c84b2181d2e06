"""R2D2 in one process: everything except gRPC between actors and learner."""

import contextlib
import threading

import numpy as np
import tensorflow as tf

from seed_rl.agents.r2d2.algorithm import R2D2
from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.agents.r2d2.networks import create_network
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.inference import env_specs
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.learner import variables
from seed_rl.common.learner.devices import batches, make_devices
from seed_rl.common.learner.fused_adam import FusedAdam
from seed_rl.common.learner.training import TrainingStep
from seed_rl.common.replay import ReplayConfig
from seed_rl.common.types import EnvOutput
from seed_rl.gym.env import wrap_for_agent
from tests.helpers.contexts import context

SMALL = QNetworkConfig(lstm_size=16, head_size=16, mlp_sizes=(16,), stack_size=1)


def values(module):
    """Of its variables."""
    return [variable.numpy() for variable in variables.variables(module)]


class Run(contextlib.AbstractContextManager):
    """One actor thread and a training step that the test calls.

    Args:
      make_env: creates one environment.
      r2d2: options, as are `replay` and `network`.
      seed: of weights, exploration and sampling.
    """

    def __init__(
        self,
        make_env,
        r2d2,
        replay=None,
        network=SMALL,
        num_envs=4,
        num_eval_envs=0,
        unroll_length=4,
        batch_size=8,
        learning_rate=1e-3,
        seed=0,
    ):
        tf.keras.utils.set_random_seed(seed)
        self._seed = seed
        self.env = BatchedEnvironment(lambda *_: wrap_for_agent(make_env()), num_envs, 0)
        self.specs = env_specs.specs(self.env.observation_space, self.env.action_space)
        replay = replay or ReplayConfig(replay_buffer_size=100, replay_buffer_min_size=4)
        placement = make_devices(DeviceConfig("cpu:0", "cpu:0"))
        strategy = placement.training_strategy
        with strategy.scope():
            self.algorithm = self.create_algorithm(
                r2d2,
                replay,
                network,
                config=LearnerConfig(unroll_length=unroll_length),
                num_envs=num_envs,
                num_eval_envs=num_eval_envs,
                seed=seed,
            )
            optimizer = FusedAdam(learning_rate, epsilon=1e-4)
        self.inference = CentralInference(
            self.algorithm,
            self.specs,
            placement.place_inference(self.algorithm.network, self.algorithm.make_network),
            num_envs=num_envs,
            num_eval_envs=num_eval_envs,
            unroll_length=unroll_length,
            queue_capacity=self.algorithm.taken_at_once(batch_size),
        )
        self.store = self.inference.store
        self._training = TrainingStep(self.algorithm, optimizer, strategy, 40.0)
        self._strategy = strategy
        self._per_replica = batch_size // strategy.num_replicas_in_sync
        self.train_steps = 0
        self._stop = threading.Event()
        self.actor_error = None
        self._actor = threading.Thread(target=self._act, daemon=True)
        self._batches = None

    def create_algorithm(self, agent, replay, network, **options):
        """R2D2; tests of other algorithms override it. `options` are those of `context`."""
        observations, actions = self.env.observation_space, self.env.action_space
        return R2D2(
            agent,
            replay,
            context(
                lambda: create_network(observations, int(actions.n), network),
                observations=observations,
                actions=actions,
                **options,
            ),
        )

    def start(self):
        """Starts the algorithm's threads; `act` starts the actor."""
        self.algorithm.before_first_step(self.train_steps)
        self._batches = batches(
            self._strategy,
            lambda: self.algorithm.dataset(self.store, self._per_replica, lambda x: x),
        )

    def act(self):
        """Starts the actor."""
        self._actor.start()

    def train(self):
        """One step; waits for experience. Returns (metrics, feedback)."""
        metrics, feedback = self._training.run(self._batches)
        self.train_steps += 1
        self.algorithm.after_step(feedback, self.train_steps)
        return metrics, feedback

    def manager(self, directory):
        """Saves and restores what the learner would."""
        algorithm = self.algorithm
        objects = {"agent": algorithm.network, **algorithm.checkpointables()}
        return CheckpointManager(directory, objects, extra=algorithm.extra_files())

    def step(self, actions, reset=False):
        """One step of all environments and one inference; returns the actions."""
        size = len(self.env.env_ids)
        if reset:
            zeros, false = np.zeros(size, np.float32), np.zeros(size, np.bool_)
            steps = np.zeros(size, np.int32)
            env_output = EnvOutput(zeros, false, self.env.reset(self._seed), false, steps)
            raw_reward = success = zeros
        else:
            observation, reward, done, abandoned, step, raw_reward, success = self.env.step(actions)
            env_output = EnvOutput(reward, done, observation, abandoned, step)
        # Copies, because the environments reuse their arrays.
        env_output, raw_reward, success = tf.nest.map_structure(
            lambda x: tf.constant(np.copy(x)), (env_output, raw_reward, success)
        )
        run_ids = tf.ones([size], tf.int64)
        return self.inference.functions[0](
            tf.constant(self.env.env_ids), run_ids, env_output, raw_reward, success
        ).numpy()

    def __exit__(self, *_):
        self._stop.set()
        self.store.close()
        self.algorithm.close()
        if self._actor.is_alive():
            self._actor.join()
        self.env.close()

    def _act(self):
        try:
            actions = self.step(None, reset=True)
            while not self._stop.is_set():
                actions = self.step(actions)
        except BaseException as error:
            self.actor_error = error
            self.store.close()
