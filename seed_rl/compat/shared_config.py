"""Options that existing programs pass from the learner to actors.

Only `serialize_config` imports TensorFlow. A learner may offer its options to actors as a function
`get_config` of its server:

    serialized = utils.serialize_config(FLAGS)
    server.bind(tf.function(lambda: serialized, input_signature=[]))   # named get_config

and an actor adopts them with `update_config(FLAGS, client)`. They are sent as JSON, but the actor
then has all of the learner's options, also those that name code: only for learners that you trust.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, MutableMapping
from typing import Any

from absl import flags, logging

from seed_rl.common.config import learner_config, options
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import run_record
from seed_rl.compat import imported_flags


def config_from_flags() -> dict[str, Any]:
    """The values of the program's flags, by name."""
    return options.flag_dictionary()


def serialize_config(config: Any) -> Any:
    """Options as JSON in a tensor <string>[].

    Args:
      config: a mapping, absl's FLAGS, a dataclass or any object with attributes. Values that JSON
        cannot represent are omitted and logged.
    """
    import tensorflow as tf

    kept = {}
    for name, value in _items(config).items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            logging.info("Option %s is not sent: JSON cannot represent %r.", name, value)
        else:
            kept[name] = value
    return tf.constant(json.dumps(kept, sort_keys=True))


def update_config(current_config: Any, client: Any) -> Any:
    """Adopts the options that a learner offers.

    Options of this process alone (run mode, task, addresses, files) are kept, as are those that the
    learner does not send.

    Args:
      current_config: a mapping, absl's FLAGS, a dataclass or any object with attributes; changed in
        place unless it is a dataclass.
      client: client of the learner's server. If the server has no function `get_config`, nothing
        changes.

    Returns:
      The updated options: `current_config` itself, or a new object if it is a dataclass.

    Raises:
      UserError: the server's answer is not a set of options.
    """
    get_config = getattr(client, "get_config", None)
    if get_config is None:
        return current_config
    sent = _parse(get_config())
    if isinstance(current_config, MutableMapping):
        current_config.update(sent)
        return current_config
    known = {name: value for name, value in sent.items() if name in _items(current_config)}
    if dataclasses.is_dataclass(current_config) and not isinstance(current_config, type):
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        return dataclasses.replace(current_config, **known)
    for name, value in known.items():
        setattr(current_config, name, value)
    return current_config


def validate_learner_config(config: Any, num_hosts: int = 1) -> None:
    """Checks that the options of a learner are consistent.

    Args:
      config: a mapping, absl's FLAGS, a dataclass or any object with attributes.
      num_hosts: number of machines that share the environments and batches.

    Raises:
      UserError: they are not; the message names the options to change.
    """
    run = imported_flags.as_config(RunConfig, config)
    learner = imported_flags.as_config(LearnerConfig, config)
    learner_config.validate(run, learner, num_replicas=num_hosts)
    if run.num_envs % num_hosts:
        raise UserError(
            f"--num_envs={run.num_envs} cannot be divided among {num_hosts} hosts; choose a "
            f"multiple of {num_hosts}."
        )


def _items(config: Any) -> Mapping[str, Any]:
    if config is flags.FLAGS:
        return options.flag_dictionary()
    if isinstance(config, Mapping):
        return config
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.asdict(config)
    return {name: value for name, value in vars(config).items() if not name.startswith("_")}


def _parse(message: Any) -> dict[str, Any]:
    text = message.numpy() if hasattr(message, "numpy") else message
    text = text.item() if hasattr(text, "item") else text
    try:
        sent = json.loads(text)
        own = run_record.OWN_OPTIONS
        return {str(name): value for name, value in sent.items() if name not in own}
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"The learner's get_config did not return options: {error}") from None
