"""A small inference store, and whole steps of its environments."""

import tensorflow as tf

from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.types import EnvOutput

OBSERVATION = tf.TensorSpec([3], tf.uint8)
ACTION = tf.TensorSpec([], tf.int32)


def make_store(
    num_envs=4,
    num_training_envs=None,
    unroll_length=1,
    num_overlapping_steps=0,
    queue_capacity=None,
    unrolls_per_step=0,
):
    """The queue holds one training step's unrolls by default, or 1000 without turns."""
    return InferenceStore(
        num_envs=num_envs,
        num_training_envs=num_envs if num_training_envs is None else num_training_envs,
        unroll_length=unroll_length,
        num_overlapping_steps=num_overlapping_steps,
        queue_capacity=(unrolls_per_step or 1000) if queue_capacity is None else queue_capacity,
        action_specs=ACTION,
        initial_state=(tf.constant([[7.0, 7.0]]),),
        step_specs={"observation": OBSERVATION, "reward": tf.TensorSpec([], tf.float32)},
        unrolls_per_step=unrolls_per_step,
    )


def env_outputs(n, reward=0.0, done=False, abandoned=False, episode_step=0):
    return EnvOutput(
        reward=tf.fill([n], tf.constant(reward, tf.float32)),
        done=tf.fill([n], done),
        observation=tf.zeros([n, 3], tf.uint8),
        abandoned=tf.fill([n], abandoned),
        episode_step=tf.fill([n], episode_step),
    )


def step_of(outputs, value=0):
    """What is recorded of a step."""
    observation = tf.fill([len(outputs.reward), 3], tf.constant(value % 256, tf.uint8))
    return {"observation": observation, "reward": outputs.reward}


def step(store, env_ids, run_ids=1, value=0, **kwargs):
    """One whole step; the state afterwards, the action and the observation carry `value`.

    `run_ids`: one of each environment, or one of all.
    """
    n = len(env_ids)
    env_ids = tf.constant(env_ids, tf.int32)
    run_ids = tf.broadcast_to(tf.constant(run_ids, tf.int64), [n])
    outputs = env_outputs(n, **kwargs)
    actions, state = store.begin(env_ids, run_ids, outputs, outputs.reward)
    store.end(
        env_ids,
        run_ids,
        tf.fill([n], tf.constant(value, tf.int32)),
        (tf.fill([n, 2], tf.constant(value, tf.float32)),),
        step_of(outputs, value),
    )
    return actions.numpy(), state[0].numpy()
