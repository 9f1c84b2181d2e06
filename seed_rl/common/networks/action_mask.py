"""Action masks in networks: see `seed_rl.common.acting.action_masks`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest


def masked(values: tf.Tensor, observation: Nest) -> tf.Tensor:
    """`values`, with -inf and no gradient where a mask in the observation forbids the choice.

    Rows whose mask allows nothing, such as padding with zeros, stay as they are.

    Args:
      values: logits or Q-values <float32>[..., choices].
      observation: nest of [..., ...].

    Raises:
      UserError: the mask has another size.
    """
    if not isinstance(observation, Mapping) or KEY not in observation:
        return values
    allowed = tf.cast(observation[KEY], tf.bool)
    if allowed.shape[-1] != values.shape[-1]:
        raise UserError(
            f"The observation's {KEY} has {allowed.shape[-1]} entries, but there are "
            f"{values.shape[-1]} choices: it must have one entry per choice of a Discrete or "
            "MultiDiscrete action."
        )
    allowed |= ~tf.reduce_any(allowed, axis=-1, keepdims=True)
    return tf.where(allowed, values, -math.inf)
