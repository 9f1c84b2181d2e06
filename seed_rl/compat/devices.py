"""Devices of existing programs that train by themselves.

    settings = utils.init_learner(num_training_tpus)
    ...
    return tf.nest.flatten(settings.encode(batch))        # in the dataset, which would stack lists
    ...
    batch = tf.nest.pack_sequence_as(specs, settings.decode(args, data))   # on each replica

Learners of this package use `learner.devices` and `learner.tpu_encoding`, which keep every dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner import tpu_encoding
from seed_rl.common.learner.devices import Devices, Encoding, make_devices

Settings = Devices

_LANES = 128
"""Vector width of a TPU, which moves data in multiples of it."""


class MultiHostSettings(NamedTuple):
    """`Settings` by host.

    Attributes:
      strategy: see `Devices`.
      hosts: for each host, the name of its CPU and those of its inference devices.
      training_strategy: see `Devices`.
      encode: see `Devices`.
      decode: see `Devices`.
    """

    strategy: tf.distribute.Strategy
    hosts: Sequence[tuple[str, Sequence[str]]]
    training_strategy: tf.distribute.Strategy
    encode: Encoding
    decode: Encoding

    def together(self) -> Devices:
        """The devices of all hosts, for a learner that is one program."""
        devices = [device for _, inference in self.hosts for device in inference]
        return Devices(self.strategy, devices, self.training_strategy, self.encode, self.decode)


class TPUEncodedUInt8(tpu_encoding.PackedIntegers):
    """Bytes as `tpu_encode` packs them."""


def init_learner(num_training_tpus: int) -> Devices:
    """`learner.devices.make_devices`; `decode` is `tpu_decode`."""
    devices = make_devices(DeviceConfig(num_training_tpus=num_training_tpus))
    return devices._replace(decode=tpu_decode)


def init_learner_multi_host(num_training_tpus: int) -> MultiHostSettings:
    """As `init_learner`, host by host."""
    devices = init_learner(num_training_tpus)
    hosts: dict[str, list[str]] = {}
    for name in devices.inference_devices:
        host = name.rpartition("/device:")[0]
        hosts.setdefault(f"{host}/device:CPU:0", []).append(name)
    return MultiHostSettings(
        devices.strategy,
        list(hosts.items()),
        devices.training_strategy,
        devices.encode,
        devices.decode,
    )


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
