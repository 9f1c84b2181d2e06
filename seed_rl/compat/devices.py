"""Devices of existing programs that train by themselves.

    settings = utils.init_learner(num_training_tpus)
    ...
    return tf.nest.flatten(settings.encode(batch))        # in the dataset, which would stack lists
    ...
    batch = tf.nest.pack_sequence_as(specs, settings.decode(args, data))   # on each replica

Learners of this package use `learner.devices` and `learner.tpu_encoding`, which keep every dtype.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner import tpu_encoding
from seed_rl.common.learner.devices import (
    Devices,
    MultiHostDevices,
    make_multi_host_devices,
    on_one_host,
)

Settings = Devices
MultiHostSettings = MultiHostDevices

_LANES = 128
"""Vector width of a TPU, which moves data in multiples of it."""


class TPUEncodedUInt8(tpu_encoding.PackedIntegers):
    """Bytes as `tpu_encode` packs them."""


def init_learner(num_training_tpus: int) -> Devices:
    """`learner.devices.make_devices`; `decode` is `tpu_decode`."""
    return on_one_host(init_learner_multi_host(num_training_tpus))


def init_learner_multi_host(num_training_tpus: int) -> MultiHostDevices:
    """`learner.devices.make_multi_host_devices`; `decode` is `tpu_decode`."""
    devices = make_multi_host_devices(DeviceConfig(num_training_tpus=num_training_tpus))
    return devices._replace(decode=tpu_decode)


def tpu_encode(ts: Any) -> Any:
    """Converts a nest of tensors to dtypes that a TPU accepts; runs on the host.

    Bytes become a `TPUEncodedUInt8` if the number of elements is known and a multiple of 128,
    <bfloat16> otherwise; <uint16> becomes <int32>. Other tensors are not changed.
    """
    return tf.nest.map_structure(lambda t: _encode(tf.convert_to_tensor(t)), ts)


def tpu_decode(ts: Any, structure: Any = None) -> Any:
    """Restores the values that `tpu_encode` was given; runs on the TPU.

    Packed bytes become <uint8> again. Widened tensors stay widened; their values are exact. What is
    not encoded is returned as it is, so this also decodes for devices other than TPUs.

    Args:
      ts: what `tpu_encode` returned.
      structure: nest to return the tensors in; by default that of `ts`.
    """
    decoded = tpu_encoding.unpack(ts)
    if structure is None:
        return decoded
    return tf.nest.pack_sequence_as(structure, tf.nest.flatten(decoded))


def _encode(tensor: tf.Tensor) -> Any:
    if tensor.dtype == tf.uint16:
        return tf.cast(tensor, tf.int32)
    if tensor.dtype != tf.uint8:
        return tensor
    size = tensor.shape.num_elements()
    if not size or size % _LANES:
        return tf.cast(tensor, tf.bfloat16)
    packed = tpu_encoding.pack(tensor)
    return TPUEncodedUInt8(packed.words, packed.tail, packed.dtype)
