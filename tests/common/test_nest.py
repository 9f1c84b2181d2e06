"""Nests without TensorFlow visit and rebuild as `tf.nest` does."""

import collections

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from seed_rl.common import nest

Pair = collections.namedtuple("Pair", ["b", "a"])

nests = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.tuples(children, children)
        | st.builds(Pair, children, children)
        | st.dictionaries(st.text(max_size=2), children, max_size=3)
    ),
    max_leaves=10,
)


@given(nests)
def test_agrees_with_tf_nest(value):
    """Guards the order of leaves, which client and server must share."""
    assert nest.flatten(value) == tf.nest.flatten(value)
    leaves = list(range(len(nest.flatten(value))))
    assert nest.pack_sequence_as(value, leaves) == tf.nest.pack_sequence_as(value, leaves)


@given(nests)
def test_map_structure_keeps_types(value):
    doubled = nest.map_structure(lambda x, y: (x, y), value, value)
    if isinstance(value, (Pair, dict, list)):
        assert type(doubled) is type(value)


def test_different_structures_are_refused():
    for other in [(1,), (1, (2, 3)), {"a": 1}, {"a": 1, "b": 2}]:
        with pytest.raises(ValueError):
            nest.map_structure(lambda x, y: x, (1, 2), other)
    with pytest.raises(ValueError, match="more than"):
        nest.pack_sequence_as((1, 2), [1])
    with pytest.raises(ValueError, match="fewer than"):
        nest.pack_sequence_as((1, 2), [1, 2, 3])
