"""The seams of `Algorithm`: several gradient steps per batch, and jobs that train or play."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import job as job_module
from seed_rl.common.learner import playing
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.learner.playing import PlayRequest
from seed_rl.common.learner.training import TrainingStep, mean_result


class Line(Algorithm):
    """Fits a weight to the mean of a batch."""

    def __init__(self):
        self.network = tf.Module()
        self.network.weight = tf.Variable(0.0)

    def make_network(self):
        raise AssertionError

    act = evaluate = make_network

    def loss(self, batch):
        error = self.network.weight - tf.reduce_mean(batch)
        return StepResult(tf.square(error), {"error": error}, (batch,))


class ThreeTimes(Line):
    """Three gradient steps on each batch, on parts of it."""

    def update(self, batch, minimize):
        parts = [part for part in tf.split(batch, 3)]
        return mean_result([minimize(lambda p=part: self.loss(p)) for part in parts])


class Nothing(Line):
    loss = Algorithm.loss


def step(algorithm, batch, learning_rate=0.1):
    optimizer = tf.keras.optimizers.SGD(learning_rate)
    training = TrainingStep(algorithm, optimizer, tf.distribute.get_strategy(), None)
    return training.run(iter(tf.data.Dataset.from_tensors(batch))), optimizer


def test_an_algorithm_may_make_several_gradient_steps():
    """Guards order, number and means of the steps, against plain arithmetic."""
    algorithm = ThreeTimes()
    batch = tf.constant([1.0, 1.0, 4.0, 4.0, -2.0, -2.0])
    (metrics, feedback), optimizer = step(algorithm, batch)
    weight, errors, losses = 0.0, [], []
    for target in (1.0, 4.0, -2.0):
        errors.append(weight - target)
        losses.append(errors[-1] ** 2)
        weight -= 0.1 * 2 * errors[-1]
    assert float(algorithm.network.weight) == pytest.approx(weight)
    assert float(metrics["error"]) == pytest.approx(np.mean(errors))
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses))
    assert float(metrics["skipped_steps"]) == 0.0
    assert int(optimizer.iterations) == 3
    np.testing.assert_array_equal(feedback[0], [-2.0, -2.0])


def test_a_bad_part_skips_its_own_gradient_step_only():
    """Guards the weights, and that the share of skipped steps is reported."""
    algorithm = ThreeTimes()
    (metrics, _), _ = step(algorithm, tf.constant([1.0, 1.0, np.nan, 4.0, 2.0, 2.0]))
    assert float(algorithm.network.weight) == pytest.approx(0.2 + 0.2 * 1.8)
    assert float(metrics["skipped_steps"]) == pytest.approx(1 / 3)


def test_an_algorithm_needs_a_loss_or_an_update():
    with pytest.raises(NotImplementedError, match="Nothing has neither `loss` nor `update`"):
        step(Nothing(), tf.constant([1.0]))


def test_a_network_may_be_told_of_the_end_of_each_step():
    algorithm, calls = Line(), []
    algorithm.after_step((), 1)  # Most networks do not ask for it.
    algorithm.network.end_of_training_step_callback = lambda: calls.append("told")
    algorithm.after_step((), 2)
    assert calls == ["told"]


def test_experience_is_counted_by_batches():
    """Guards frames: an algorithm without a replay consumes each batch once."""
    algorithm = Line()
    assert algorithm.unrolls_consumed == 0
    algorithm.trained_on(8)
    algorithm.trained_on(8)
    assert (algorithm.unrolls_consumed, Line().unrolls_consumed) == (16, 0)


@pytest.fixture
def job(monkeypatch):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["test"])
    done = []
    monkeypatch.setattr(TrainingJob, "train", lambda job: done.append("trained"))
    monkeypatch.setattr(playing, "play", lambda job, request: done.append(request))
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(TrainingJob))
    return TrainingJob(**{**nothing, "run": RunConfig(), "config": LearnerConfig()}), done


def test_a_job_trains_unless_it_is_asked_to_play(job):
    job, done = job
    request = PlayRequest(results="file", environment=["true"], episodes=3, model="model")
    job.execute()
    dataclasses.replace(job, run=RunConfig(play_request=request.to_json())).execute()
    assert done == ["trained", request]


def test_a_program_without_actors_still_has_an_environment(job, monkeypatch):
    """Guards playing for programs that call `execute` whatever the --run_mode."""
    job, done = job
    monkeypatch.setattr(job_module, "from_flags", lambda cls: RunConfig(run_mode="actor"))
    monkeypatch.setattr(
        job_module.environment_process, "serve", lambda *served: done.append(served)
    )
    request = EnvironmentRequest("film.gif")
    run = RunConfig(play_request=request.to_json())
    job = dataclasses.replace(job, run=run, create_env_fn=lambda *created: created)
    job.execute()
    assert done == [(job.create_env, request)]


def test_a_program_that_only_trains_is_not_played():
    """Guards the saved run, which would continue with a replay of one unroll."""
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(TrainingJob))
    with pytest.raises(UserError, match=r"`job.execute\(\)`"):
        TrainingJob(**{**nothing, "learners": 1, "run": RunConfig(play_request="{}")}).train()


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"episodes": 1, "other": 2}), "3"])
def test_a_request_of_a_person_is_refused(text):
    """Guards the message to users who set --play_request."""
    with pytest.raises(UserError, match="seed-rl play"):
        PlayRequest.from_json(text)
