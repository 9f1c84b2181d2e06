"""PopArt and input normalization: updates of the statistics do not change what networks compute."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.normalization.input_normalization import InputNormalization
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.normalization.running_statistics import (
    AverageMeanStd,
    EMAMeanStd,
    FixedMeanStd,
)


def make_popart(tracker=None, **options):
    popart = PopArt(tracker or EMAMeanStd(0.2), **options)
    popart.init()
    return popart


def values(popart, outputs):
    return popart.unnormalize_prediction(popart.correct_prediction(outputs)).numpy()


def test_fresh_popart_changes_nothing():
    popart, x = make_popart(), tf.constant([[1.0, -2.0]])
    for change in (
        popart.normalize_target,
        popart.normalize_advantage,
        popart.correct_prediction,
        popart.unnormalize_prediction,
    ):
        np.testing.assert_array_equal(change(x), x)


def test_updates_preserve_outputs():
    """While targets become a thousand times larger, and small again."""
    rng, popart = np.random.default_rng(0), make_popart()
    outputs = rng.normal(size=(3, 4)).astype(np.float32)
    before = values(popart, outputs)
    for scale in (1.0, 1e3, 1e3, 1e3, 10.0, 1.0):
        popart.update_normalization_statistics(scale * (rng.normal(size=(5, 2)) + 1))
        np.testing.assert_allclose(values(popart, outputs), before, rtol=1e-3, atol=1e-3)
    assert float(popart.normalize_target(0.0)) != 0.0


def test_without_compensation_outputs_move():
    popart = make_popart(compensate=False)
    popart.update_normalization_statistics([100.0, 300.0])
    assert float(popart.scale) == 1.0 and float(popart.shift) == 0.0
    assert values(popart, [1.0]) > 10


def test_targets_and_advantages_are_normalized():
    popart = make_popart(AverageMeanStd())
    targets = np.float32([[100.0, 300.0], [500.0, 700.0]])
    popart.update_normalization_statistics(targets)
    popart.init()  # Changes nothing.
    normalized = (targets - targets.mean()) / targets.std()
    np.testing.assert_allclose(popart.normalize_target(targets), normalized, rtol=1e-5)
    np.testing.assert_allclose(popart.normalize_advantage(targets), targets / targets.std())
    np.testing.assert_allclose(
        popart.unnormalize_prediction(normalized.astype(np.float32)), targets, rtol=1e-5
    )


def test_scale_and_shift_are_trained_and_the_statistics_are_not():
    popart = make_popart()
    assert {v.name.split(":")[0] for v in popart.trainable_variables} == {"scale", "shift"}
    with tf.GradientTape() as tape:
        popart.update_normalization_statistics([1.0, 5.0])
        loss = tf.reduce_sum(popart.correct_prediction(tf.constant([2.0, 3.0])))
    assert tape.gradient(loss, [popart.scale, popart.shift]) == [5.0, 2.0]


def test_popart_must_be_initialized():
    with pytest.raises(ValueError, match="init"):
        PopArt(FixedMeanStd()).update_normalization_statistics([1.0])


def test_updates_preserve_corrected_inputs():
    rng, inputs = np.random.default_rng(0), InputNormalization(EMAMeanStd(0.2))
    assert not inputs.initialized
    with pytest.raises(ValueError, match="init_normalization_stats"):
        inputs.update_normalization_statistics([[1.0]])
    inputs.init_normalization_stats(3)
    assert inputs.initialized
    x = rng.normal(size=(4, 3)).astype(np.float32)
    for scale in (1.0, 100.0, 0.1):
        inputs.update_normalization_statistics(scale * (rng.normal(size=(2, 6, 3)) + [0, 1, 2]))
        np.testing.assert_allclose(inputs.correct(inputs.normalize(x)), x, rtol=1e-3, atol=1e-3)
    mean, std = inputs.get_mean_std()
    np.testing.assert_allclose(inputs.normalize(x), (x - mean) / std)
    assert np.abs(mean.numpy()).min() > 0
    assert len(inputs.trainable_variables) == 2


def test_the_first_call_in_a_function_may_create_variables():
    """A network learns its input's size when it is first called."""
    inputs = InputNormalization(AverageMeanStd())

    @tf.function
    def call(x):
        inputs.init_normalization_stats(x.shape[-1])
        inputs.update_normalization_statistics(x)
        return inputs.normalize(x)

    normalized = call(tf.constant([[1.0, 10.0], [3.0, 30.0]]))
    np.testing.assert_allclose(normalized, [[-1.0, -1.0], [1.0, 1.0]], rtol=1e-6)
