"""The type of arithmetic that `--compute_dtype=auto` chooses."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.networks import layers
from seed_rl.common.system import processor


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Returns a function that pretends a machine of some processor and accelerators."""
    layers._native_dtype.cache_clear()

    def pretend(cpu, capabilities=(), tpus=0, onednn=None):
        gpus = {f"gpu{i}": capability for i, capability in enumerate(capabilities)}
        config = tf.config
        if onednn:
            monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
        else:
            monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
        monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: cpu)
        monkeypatch.setattr(config, "get_visible_devices", lambda kind: list(gpus))
        monkeypatch.setattr(config, "list_logical_devices", lambda kind: ["tpu"] * tpus)
        details = {gpu: {"compute_capability": value} for gpu, value in gpus.items() if value}
        monkeypatch.setattr(
            config.experimental, "get_device_details", lambda gpu: details.get(gpu, {})
        )

    yield pretend
    layers._native_dtype.cache_clear()


@pytest.mark.parametrize(
    ("hardware", "dtype"),
    [
        (dict(cpu=True), tf.bfloat16),
        (dict(cpu=False), tf.float32),
        (dict(cpu=True, onednn="0"), tf.float32),
        (dict(cpu=False, capabilities=[(8, 0), (9, 0)]), tf.bfloat16),
        # The processor does not count where GPUs compute, and the oldest of them decides.
        (dict(cpu=True, capabilities=[(9, 0), (7, 5)]), tf.float32),
        (dict(cpu=True, capabilities=[None]), tf.float32),
        (dict(cpu=False, tpus=8), tf.bfloat16),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_has_instructions(machine, hardware, dtype):
    machine(**hardware)
    assert layers.Layer("auto").compute_dtype == dtype


def test_the_layers_of_a_network_share_the_choice(machine):
    """Guards dtypes that differ within a network if a device is asked at another time."""
    machine(cpu=True)
    dense = layers.Dense(3, compute_dtype="auto", layer_norm=True)
    machine(cpu=False)
    outputs = dense(tf.zeros([64, 2]))
    assert outputs.dtype == tf.bfloat16
    assert np.all(outputs == 0)
    assert layers.Dense(3, compute_dtype="auto").compute_dtype == tf.bfloat16
    assert {variable.dtype for variable in dense.variables} == {tf.float32}


def test_hidden_gpus_do_not_count(monkeypatch):
    """Guards `play` and `evaluate`, which compute on the processor beside a GPU."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: ["an old GPU"])
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    assert layers.Layer("auto").compute_dtype == tf.bfloat16


def test_a_type_that_is_named_is_not_second_guessed(machine):
    machine(cpu=True)
    assert layers.Layer().compute_dtype == tf.float32
    assert layers.Layer(tf.float32).compute_dtype == tf.float32
    assert layers.Layer("bfloat16").compute_dtype == tf.bfloat16
