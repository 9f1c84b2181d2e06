"""Nests (tuples, named tuples, lists, dicts) of arrays, without TensorFlow.

Follows `tf.nest`: dictionaries are visited in sorted key order, `None` is a leaf, named tuples
keep their type. Actors use this module, because importing TensorFlow would cost them seconds and
half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Nest = Any
"""A leaf, or a tuple, named tuple, list or dict of nests."""


def is_namedtuple(value: object) -> bool:
    """Whether `value` is an instance of a `collections.namedtuple` type."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _children(nest: Nest) -> list[Nest] | None:
    """The direct children in visiting order; None for a leaf."""
    if isinstance(nest, Mapping):
        return [nest[key] for key in sorted(nest)]
    if isinstance(nest, (tuple, list)):
        return list(nest)
    return None


def _rebuild(like: Nest, children: list[Nest]) -> Nest:
    if isinstance(like, Mapping):
        by_key = dict(zip(sorted(like), children, strict=True))
        return {key: by_key[key] for key in like}
    if is_namedtuple(like):
        return type(like)(*children)
    return type(like)(children)


def flatten(nest: Nest) -> list[Any]:
    """Returns the leaves of `nest` in order."""
    children = _children(nest)
    if children is None:
        return [nest]
    return [leaf for child in children for leaf in flatten(child)]


def pack_sequence_as(structure: Nest, leaves: list[Any]) -> Nest:
    """Arranges `leaves` in the structure of `structure`.

    Raises:
      ValueError: the number of leaves differs.
    """
    iterator = iter(leaves)
    try:
        packed = _pack(structure, iterator)
    except StopIteration:
        raise ValueError(f"The structure has more than the {len(leaves)} leaves given.") from None
    if next(iterator, _END) is not _END:
        raise ValueError(f"The structure has fewer than the {len(leaves)} leaves given.")
    return packed


_END = object()


def _pack(structure: Nest, leaves: Iterator[Any]) -> Nest:
    children = _children(structure)
    if children is None:
        return next(leaves)
    packed = []
    for child in children:
        packed.append(_pack(child, leaves))
    return _rebuild(structure, packed)


def map_structure(fn: Callable[..., Any], *nests: Nest) -> Nest:
    """Applies `fn` leaf by leaf to nests of the same structure.

    Raises:
      ValueError: the structures differ.
    """
    children = [_children(nest) for nest in nests]
    first = children[0]
    if first is None:
        if any(child is not None for child in children):
            raise ValueError("The nests have different structures.")
        return fn(*nests)
    has_keys = isinstance(nests[0], Mapping)
    for nest, child in zip(nests, children, strict=True):
        if child is None or len(child) != len(first) or isinstance(nest, Mapping) != has_keys:
            raise ValueError("The nests have different structures.")
    if has_keys and any(set(n) != set(nests[0]) for n in nests):
        raise ValueError("The nests have dictionaries with different keys.")
    results = [map_structure(fn, *group) for group in zip(*children, strict=True)]
    return _rebuild(nests[0], results)
