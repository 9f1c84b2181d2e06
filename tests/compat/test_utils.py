"""The names of `common.utils`."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import parametric_distribution, utils
from seed_rl.common.learner.devices import Devices
from seed_rl.common.types import EnvOutput


def test_every_name_of_the_facade_exists():
    assert dir(utils) == sorted(utils.__all__)  # Also those that nothing has imported yet.
    for name in utils.__all__:
        assert getattr(utils, name) is not None
    assert utils.EnvOutput is EnvOutput
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = utils.nonsense


def test_spaces_of_old_gym():
    """Recognized by name: the old package need not be installed."""
    box = type("Box", (), dict(low=-np.ones(2), high=np.ones(2), dtype=np.float32))()
    space = type(
        "Dict", (), dict(spaces={"steer": box, "gear": type("Discrete", (), {"n": 3})()})
    )()
    specs = utils.tensor_spec_from_gym_space(space, "action")
    distribution = parametric_distribution.get_parametric_distribution_for_action_space(space)
    sample = distribution.sample(tf.zeros([distribution.param_size]))
    for key, spec in specs.items():
        assert (sample[key].dtype, sample[key].shape) == (spec.dtype, spec.shape)


def test_init_learner_gives_settings():
    settings = utils.init_learner(num_training_tpus=1)
    assert settings.strategy is settings.training_strategy
    assert len(settings.inference_devices) == 1
    strategy, hosts, training_strategy, encode, decode = utils.init_learner_multi_host(1)
    assert strategy is training_strategy
    assert hosts == [("/device:CPU:0", settings.inference_devices)]
    assert decode(encode(1)) == 1
    # As learners do that take a flattened batch out of a dataset.
    batch = tuple(tf.nest.flatten(encode({"a": tf.constant(1), "b": [tf.constant(2)]})))
    assert settings.decode(batch, [0, 0]) == decode(batch, [0, 0]) == [1, 2]


def test_the_devices_of_several_hosts(monkeypatch):
    """Guards `MultiHostSettings.hosts`, as names of a TPU's devices have their hosts."""
    tpus = [f"/job:worker/task:{task}/device:TPU:{core}" for task in (0, 1) for core in (2, 3)]
    strategy = tf.distribute.get_strategy()
    devices = Devices(strategy, tpus, strategy, lambda nest: nest, lambda nest: nest)
    monkeypatch.setattr("seed_rl.compat.devices.make_devices", lambda config: devices)
    settings = utils.init_learner_multi_host(4)
    assert settings.hosts == [
        ("/job:worker/task:0/device:CPU:0", tpus[:2]),
        ("/job:worker/task:1/device:CPU:0", tpus[2:]),
    ]
    assert settings.together().inference_devices == tpus
