"""Chooses the devices that infer and those that train.

`make_devices` splits the devices of the machine:

    TPU            some cores train (`TPUStrategy`), the others infer; on each of several hosts
    GPUs, CPU      one trains (`OneDeviceStrategy`) and another infers; a single one does both
    named ones     several may train (`MirroredStrategy`) and infer
    learners       all GPUs of each train, or its CPU; the first infers, too (`several_learners`)

Inference on devices that do not train uses copies of the weights, which `copy_variables` updates
after each training step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import several_learners, tpu_encoding, variables
from seed_rl.common.networks.layers import Layer
from seed_rl.common.system import nvidia

Encoding = Callable[[Any], Any]


class Devices(NamedTuple):
    """The devices of one learner.

    Attributes:
      strategy: over all accelerators on a TPU; elsewhere the same as `training_strategy`.
      inference_devices: names of the devices that run the policy for the actors.
      training_strategy: strategy of training steps.
      encode: nest of tensors -> nest that transfers quickly to the training devices; runs on the
        host.
      decode: undoes `encode`; runs on the training devices.
    """

    strategy: tf.distribute.Strategy
    inference_devices: Sequence[str]
    training_strategy: tf.distribute.Strategy
    encode: Encoding
    decode: Encoding

    def describe(self, network: tf.Module) -> str:
        """What infers and trains: "inference on gpu:0, training on gpu:1, gpu:2, in bfloat16"."""
        inference = _short([_full_name(device) for device in self.inference_devices])
        training = _short(_training_devices(self.training_strategy))
        types = {part.compute_dtype for part in network.submodules if isinstance(part, Layer)}
        dtype = ", in bfloat16" if tf.bfloat16 in types else ""
        return f"inference on {inference}, training on {training}{dtype}"

    def unused_gpus(self) -> str | None:
        """A warning about GPUs of this machine that neither infer nor train; None: all do."""
        used = [*self.inference_devices, *_training_devices(self.training_strategy)]
        if any(":TPU:" in name.upper() for name in used):
            return None
        seen = [_full_name(device.name) for device in tf.config.list_logical_devices("GPU")]
        idle = sorted(set(seen) - {_full_name(name) for name in used})
        if idle:
            return (
                f"{_short(idle)} idle: one GPU trains and one infers unless --training_devices and "
                "--inference_devices name others. CUDA_VISIBLE_DEVICES hides GPUs from this run "
                "and leaves them to another."
            )
        if tf.config.list_physical_devices("GPU") or not nvidia.visible_gpus():
            return None  # Used, or hidden by this program.
        return (
            "this machine has a GPU (nvidia-smi -L lists it), but TensorFlow cannot use it: the "
            "learner runs on the CPU. Install CUDA's libraries with `scripts/setup.sh gpu`, or set "
            "CUDA_VISIBLE_DEVICES=-1 if that is intended."
        )

    def place_inference(
        self, network: tf.Module, make_network: Callable[[], tf.Module]
    ) -> list[tuple[str, tf.Module]]:
        """(device, network) for each inference device.

        Args:
          network: the network being trained; used as it is on the one device that trains it.
          make_network: creates the copies for other devices, for `copy_variables` to fill.
        """
        placements = []
        for device in self.inference_devices:
            if _training_devices(self.training_strategy) == [_full_name(device)]:
                placements.append((device, network))
            else:
                with tf.device(device):
                    placements.append((device, make_network()))
        return placements


def make_devices(config: DeviceConfig | None = None) -> Devices:
    """Chooses devices by `config`, of those that TensorFlow sees.

    Args:
      config: the split.

    Raises:
      UserError: the devices do not exist, or cannot be split that way.
    """
    config = config or DeviceConfig()
    _limit_threads(config)
    if config.learners > 1:
        return _with_other_learners(config)
    resolver = _tpu_resolver(config)
    if resolver is not None:
        return _on_tpu(config, resolver)
    if not re.search("auto|gpu", f"{config.inference_devices} {config.training_devices}", re.I):
        _hide_gpus()  # Otherwise they would decide the type of the arithmetic (`compute_dtype`).
    _grow_gpu_memory()
    available = [device.name for device in tf.config.list_logical_devices()]
    inference, training = choose(config, available)
    strategy: tf.distribute.Strategy
    if len(training) == 1:
        strategy = tf.distribute.OneDeviceStrategy(training[0])
    else:
        strategy = tf.distribute.MirroredStrategy(training)
    return Devices(strategy, inference, strategy, _identity, _identity)


def _with_other_learners(config: DeviceConfig) -> Devices:
    if config.training_devices != "auto" or config.tpu:
        raise UserError(
            "With several learners, leave --training_devices and --tpu out: all GPUs of each "
            "learner train, or its CPU. CUDA_VISIBLE_DEVICES chooses among them."
        )
    _grow_gpu_memory()
    gpus = tf.config.list_physical_devices("GPU")
    available = [f"/device:GPU:{i}" for i in range(len(gpus))] or ["/device:CPU:0"]
    inference = _parse("inference_devices", config.inference_devices, available) or available[:1]
    strategy = several_learners.make_strategy(config.addresses, config.learner_index)
    return Devices(strategy, inference, strategy, _identity, _identity)


def _limit_threads(config: DeviceConfig) -> None:
    if not config.training_threads:
        return
    try:
        tf.config.threading.set_inter_op_parallelism_threads(config.training_threads)
        tf.config.threading.set_intra_op_parallelism_threads(config.training_threads)
    except RuntimeError:  # A notebook has already used TensorFlow; the number of threads is fixed.
        logging.warning(
            "training_threads=%d has no effect: TensorFlow is already initialized in this process.",
            config.training_threads,
        )


def _hide_gpus() -> None:
    """Hides GPUs from TensorFlow in this process, but not from environments."""
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:  # A program that has used TensorFlow.
        logging.warning(
            "TensorFlow is already initialized, so GPUs cannot be hidden from it, although no "
            "device option names one."
        )


def _grow_gpu_memory() -> None:
    """Leaves unneeded GPU memory to environments and other processes."""
    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except (RuntimeError, ValueError):  # The program has already used or divided the GPU.
            logging.warning(
                "TensorFlow is already initialized: it keeps the memory settings of %s.", gpu.name
            )


def choose(config: DeviceConfig, available: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits CPUs and GPUs between inference and training.

    By default one device trains. Steps on several are not compiled (`training.TrainingStep`) and,
    judging from measurements on one GPU (docs/scale.md), slower.

    Args:
      config: the split.
      available: device names, as from `tf.config.list_logical_devices`.

    Returns:
      (inference devices, training devices).

    Raises:
      UserError: a device does not exist or is named twice, or the devices cannot train together.
    """
    names = [_full_name(name) for name in available]
    accelerators = [n for n in names if ":GPU:" in n] or [n for n in names if ":CPU:" in n][:1]
    inference = _parse("inference_devices", config.inference_devices, names)
    training = _parse("training_devices", config.training_devices, names)
    if training is None:
        inference = inference or accelerators[:1]
        rest = [name for name in accelerators if name not in inference]
        training = (rest or accelerators)[:1]
    elif inference is None:
        inference = [name for name in accelerators if name not in training] or training[:1]
    if len({name.split(":")[1] for name in training}) > 1:
        raise UserError(
            f"--training_devices={config.training_devices} mixes kinds of devices; name only GPUs "
            "or only CPUs."
        )
    return inference, training


def copy_variables(source: tf.Module, targets: Sequence[tf.Module], fraction: float = 1.0) -> None:
    """Copies the variables of `source` to those of `targets`, or moves these towards them.

    May run during inference: each variable changes as a whole. An inference that runs meanwhile
    uses some new and some old weights, as it does if inference and training share them; the
    policies recorded are those that acted.

    If called often, call it in a `tf.function`.

    Args:
      source: a network, its variables mirrored or not.
      targets: networks of the same architecture, on any devices, with their variables created.
      fraction: fraction of the distance by which trainable variables of `targets` move; 1: copies
        them. Others, such as statistics of observations, are copied.

    Raises:
      ValueError: the variables differ in number or shape.
    """
    values = variables.variables(source)
    for target in targets:
        copies = variables.variables(target)
        if [value.shape for value in values] != [copy.shape for copy in copies]:
            raise ValueError("The networks have different variables; was each of them called once?")
        for value, copy in zip(values, copies, strict=True):
            # Under the target's device, a mirrored variable reads the nearest replica.
            with tf.device(copy.device):
                moves = fraction < 1.0 and value.trainable
                copy.assign(copy + fraction * (value - copy) if moves else value)


def through_tf_data(encode: Encoding, decode: Encoding) -> tuple[Encoding, Encoding]:
    """Both, changed to keep a batch's structure: on its own, tf.data turns lists into tensors.

    The first must be traced before the second.
    """
    structure: list[Any] = []

    def flat(batch: Any) -> tuple[Any, ...]:
        encoded = encode(batch)
        structure[:] = [tf.nest.map_structure(lambda _: 0, encoded)]
        return tuple(tf.nest.flatten(encoded))

    return flat, lambda parts: decode(tf.nest.pack_sequence_as(structure[0], parts))


def batches(strategy: tf.distribute.Strategy, make_dataset: Callable[[], Any]) -> Iterator[Any]:
    """Batches for `strategy.run`, from one dataset per host.

    Keep the iterator until the run has been saved: destroying it may block, on the dataset's
    function for example, and would delay that.

    Args:
      strategy: training strategy.
      make_dataset: returns the `tf.data.Dataset`.
    """
    options = tf.data.Options()
    # There is nothing to tune, and TensorFlow 2.21's autotuning has a lost wake-up: destroying an
    # iterator may wait until its thread next polls, up to 60 s.
    options.autotune.enabled = False
    if _training_devices(strategy) == [_full_name("cpu:0")] or (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and len(_training_devices(strategy)) == 1
    ):
        # Distributing it would add a second dataset, without these options.
        return iter(make_dataset().with_options(options))
    return iter(
        strategy.distribute_datasets_from_function(lambda _: make_dataset().with_options(options))
    )


def _identity(nest: Any) -> Any:
    return nest


def _full_name(name: str) -> str:
    """`/device:GPU:1` for `gpu:1`, or for a name with job and task."""
    match = re.search(r"(cpu|gpu|tpu):(\d+)$", name.strip(), re.IGNORECASE)
    return f"/device:{match[1].upper()}:{match[2]}" if match else name


def _parse(option: str, value: str, available: Sequence[str]) -> list[str] | None:
    """The devices that an option names; None for auto."""
    if value.strip().lower() == "auto":
        return None
    names = [_full_name(part) for part in value.split(",") if part.strip()]
    shown = _short(available)
    for name in names:
        if name not in available:
            raise UserError(f"--{option}={value}: TensorFlow has no such device; it has {shown}.")
    if not names or len(set(names)) < len(names):
        raise UserError(f"--{option}={value} must name devices, each once, of {shown}.")
    return names


def _short(names: Sequence[str]) -> str:
    return ", ".join(name.rpartition("/device:")[2].lower() for name in names)


def _training_devices(strategy: tf.distribute.Strategy) -> list[str]:
    return [_full_name(device) for device in strategy.extended.worker_devices]


def _tpu_resolver(config: DeviceConfig) -> Any:
    """A cluster resolver for the TPU; None to run without one."""
    name = config.tpu or os.environ.get("TPU_NAME") or ""
    if not name:
        if not tf.config.list_physical_devices("TPU"):
            return None
        name = "local"
    if (config.inference_devices, config.training_devices) != ("auto", "auto"):
        raise UserError(
            "On a TPU, choose the split with --num_training_tpus instead of --inference_devices "
            "and --training_devices."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
    except (ValueError, RuntimeError, OSError, ImportError, tf.errors.OpError) as error:
        raise UserError(
            f"Cannot reach the TPU '{name}' ({error}). Check --tpu, or TPU_NAME in the "
            "environment; unset both to run without a TPU."
        ) from error
    return resolver


def _on_tpu(config: DeviceConfig, resolver: Any) -> Devices:
    try:
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(
            f"The TPU cannot be used: {error}. It needs a TensorFlow with TPU support (the "
            "tensorflow-tpu package on a TPU machine)."
        ) from error
    job = resolver.get_job_name() if resolver.cluster_spec().jobs else "localhost"
    cores, inference = split_tpu(topology, config.num_training_tpus, job)
    strategy = tf.distribute.TPUStrategy(resolver)
    training_strategy = strategy
    if len(cores) < topology.num_tasks * topology.num_tpus_per_task:
        assignment = tf.tpu.experimental.DeviceAssignment(topology, cores)
        training_strategy = tf.distribute.TPUStrategy(
            resolver, experimental_device_assignment=assignment
        )
    encoding = tpu_encoding.pack, tpu_encoding.unpack
    return Devices(strategy, inference, training_strategy, *encoding)


def split_tpu(
    topology: tf.tpu.experimental.Topology, num_training: int, job: str
) -> tuple[np.ndarray, list[str]]:
    """Splits the cores of a TPU between training and inference, the same way on each host.

    Args:
      topology: of the TPU.
      num_training: training cores, over all hosts.
      job: job name of the hosts.

    Returns:
      (coordinates <int32>[num_training, 1, mesh rank] of the training cores, names of the inference
      cores).

    Raises:
      UserError: too few cores, or a number that the hosts cannot share equally.
    """
    # <int32>[hosts, cores of a host, mesh rank]
    coordinates = np.asarray(topology.device_coordinates)
    num_hosts, per_host = coordinates.shape[:2]
    if num_training > num_hosts * per_host:
        raise UserError(
            f"--num_training_tpus={num_training}, but the TPU has {num_hosts * per_host} cores."
        )
    if num_training % num_hosts:
        raise UserError(
            f"--num_training_tpus={num_training} must be a multiple of the {num_hosts} hosts, so "
            "that each has the same number."
        )
    each = num_training // num_hosts
    training = coordinates[:, :each].reshape(num_training, 1, -1)
    inferring = coordinates[:, each:] if each < per_host else coordinates
    names = [
        topology.tpu_device_name_at_coordinates(core, job=job)
        for host in range(num_hosts)
        for core in inferring[host]
    ]
    return training, names
