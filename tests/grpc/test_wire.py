"""The NumPy codec of the wire format, and the JSON form of structures."""

import collections
import struct

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra import numpy as hnp

from seed_rl.common import nest
from seed_rl.grpc import structures, wire
from seed_rl.grpc.errors import WireError
from seed_rl.grpc.structures import TensorSpec

NUMBER_DTYPES = [name for name in wire.DTYPE_NAMES if name not in ("bfloat16", "string")]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


def numbers():
    """Arrays of every element type that NumPy has itself, of both byte orders and any layout."""
    dtypes = st.sampled_from(NUMBER_DTYPES).map(np.dtype)
    swapped = st.sampled_from(["int32", "float64", "uint16"]).map(
        lambda name: np.dtype(name).newbyteorder(">")
    )
    arrays = hnp.arrays(st.one_of(dtypes, swapped), SHAPES)
    return st.one_of(
        arrays, arrays.map(np.transpose), arrays.map(lambda a: a[..., ::-1] if a.ndim else a)
    )


def strings():
    """Object arrays of bytes."""
    return hnp.arrays(np.dtype(object), SHAPES, elements=st.binary(max_size=20))


TENSORS = st.lists(st.one_of(numbers(), strings()), max_size=5)
CALL_IDS = st.integers(0, 2**64 - 1)


def assert_same(actual, expected):
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype.newbyteorder("=")
    if expected.dtype.kind == "f":  # NaNs with their payload, and signed zeros.
        assert actual.tobytes() == expected.astype(actual.dtype).tobytes()
    else:
        assert actual.tolist() == expected.tolist()


def test_a_call_is_these_bytes():
    """Guards the format itself: both sides changing together would pass any roundtrip."""
    data = wire.encode_call(
        0x0102030405060708,
        3,
        [np.array([[1, -2]], np.int16), np.array([b"ab", b""], object), np.array(1.5, np.float32)],
    )
    assert data.hex(" ", -4) == " ".join(
        ["53445231", "00000300", "08070605", "04030201", "03000000", "00000000"]
        + ["04020000", "00000000", "04000000", "00000000"]
        + ["01000000", "00000000", "02000000", "00000000", "0100feff"]
        + ["0d010000", "00000000", "0a000000", "00000000", "02000000", "00000000"]
        + ["02000000", "00000000", "61620b00", "00000000", "00000400", "00000000"]
        + ["00000000", "c03f"]
    )


def test_an_error_is_these_bytes():
    """Guards the layout of error frames."""
    data = wire.encode_error(wire.UNREADABLE_CALL_ID, 3, "né")
    assert data == b"SDR1\2\0\0\0" + b"\xff" * 8 + b"\3\0\0\0" + b"\3\0\0\0" + b"n\xc3\xa9"


@hypothesis.given(CALL_IDS, st.none() | st.integers(0, 2**32 - 1), TENSORS)
def test_calls_and_replies_come_back(call_id, function, tensors):
    """Any tensors survive encoding and decoding, whatever their layout in memory."""
    if function is None:
        frame = wire.decode(wire.encode_reply(call_id, tensors))
        assert frame[:3] == (wire.KIND_REPLY, call_id, 0)
    else:
        frame = wire.decode(wire.encode_call(call_id, function, tensors))
        assert frame[:3] == (wire.KIND_CALL, call_id, function)
    for actual, expected in zip(frame.tensors, tensors, strict=True):
        assert_same(actual, expected)


@hypothesis.given(CALL_IDS, st.integers(0, 2**32 - 1), st.text())
def test_errors_come_back(call_id, code, text):
    """Error frames carry any text."""
    frame = wire.decode(wire.encode_error(call_id, code, text))
    expected = text.encode("utf-8", "replace").decode()  # Lone surrogates are replaced.
    assert frame == (wire.KIND_ERROR, call_id, code, [], expected)


def test_numpy_strings_travel_as_strings():
    """Arrays of NumPy's own string types are sent like lists of strings."""
    for array in (
        np.array(["é", "b"]),
        np.array(["é", "b"], object),
        np.array([b"\xc3\xa9", b"b"]),
    ):
        (decoded,) = wire.decode(wire.encode_reply(1, [array])).tensors
        assert decoded.tolist() == ["é".encode(), b"b"]


def test_any_byte_but_zero_is_true():
    """Invalid bools from the network become valid ones."""
    data = wire.encode_reply(1, [np.array([False, True, True])])
    (decoded,) = wire.decode(data[:-1] + b"\x02").tensors
    assert decoded.view(np.uint8).tolist() == [0, 1, 1]


def test_decoding_does_not_copy():
    """Decoded numbers are views, read-only so that the message cannot be changed by accident."""
    data = wire.encode_reply(1, [np.zeros(1000, np.uint8)])
    (decoded,) = wire.decode(data).tensors
    assert np.shares_memory(decoded, np.frombuffer(data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.array([None], object), "NoneType"),
        (np.zeros([1] * 17), "at most 16 dimensions"),
    ],
)
def test_what_cannot_travel_is_named(array, message):
    """Encoding refuses what the format does not have."""
    with pytest.raises(WireError, match=message):
        wire.encode_call(1, 0, [array])


def frame(body=b"", *, magic=b"SDR1", kind=0, zero=0, count=1, code=0, length=0):
    return struct.pack("<4sBBHQII", magic, kind, zero, count, 5, code, length) + body


def tensor(payload=b"", *, dtype=1, zero=0, zeros=0, size=None, dims=()):
    size = len(payload) if size is None else size
    header = struct.pack("<BBHIQ", dtype, len(dims), zero, zeros, size)
    return header + struct.pack(f"<{len(dims)}q", *dims) + payload


@pytest.mark.parametrize(
    "data",
    [
        b"",
        frame(count=0)[:-1],
        frame(tensor(b"x"), magic=b"SDR2"),
        frame(tensor(b"x"), kind=3),
        frame(tensor(b"x"), zero=1),
        frame(tensor(b"x"), kind=1, code=1),
        frame(tensor(b"x"), kind=2),
        frame(b"xy", length=2, count=0),
        frame(b"xy", kind=2, length=3, count=0),
        frame(tensor(b"x"), count=0),
        frame(tensor(b"x"), count=2),
        frame(tensor(b"x"), count=65535),
        frame(tensor(b"x") + b"y"),
        frame(tensor(b"x")[:-1]),
        frame(tensor(b"x")[:-2]),
        frame(tensor(b"x", dtype=14)),
        frame(tensor(b"x", zero=1)),
        frame(tensor(b"x", zeros=1)),
        frame(tensor(b"x", size=2**64 - 1)),
        frame(tensor(b"x", size=0)),
        frame(tensor(b"xy", dims=[1])),
        frame(tensor(b"xy", dims=[3])),
        frame(tensor(b"xy", dims=[-2])),
        frame(tensor(b"xy", dims=[-1, -2])),
        frame(tensor(b"", dims=[-1, 0])),
        frame(tensor(b"", dims=[2**62, 4])),
        frame(tensor(b"", dims=[2**62, 2**62, 0])),
        frame(tensor(b"x", dims=[2**63 - 1, 2**63 - 1])),
        frame(tensor(b"x", dims=[1] * 17)),
        frame(tensor(b"xyz", dtype=11)),
        frame(tensor(b"\1\0\0", dtype=13)),
        frame(tensor(b"\2\0\0\0a", dtype=13)),
        frame(tensor(b"\0\0\0\0a", dtype=13)),
        frame(tensor(b"\xff\xff\xff\xff" * 2, dtype=13, dims=[2])),
        frame(tensor(b"", dtype=13, dims=[2**40])),
    ],
)
def test_malformed_frames_are_refused(data):
    """Each rule of the format is checked; a reader that skips one accepts its line here."""
    with pytest.raises(WireError):
        wire.decode(data)


@hypothesis.given(TENSORS, st.data())
def test_mutated_frames_are_decoded_or_refused(tensors, data):
    """A frame with changed, missing or added bytes raises at most the documented exception."""
    mutated = bytearray(wire.encode_call(1, 0, tensors))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(mutated) - 1))
        if data.draw(st.booleans()):
            mutated[position] = data.draw(st.sampled_from([0, 1, 2, 13, 127, 128, 255]))
        else:
            mutated[position : position + 1] = data.draw(st.binary(max_size=9))
        if not mutated:
            break
    try:
        decoded = wire.decode(bytes(mutated))
    except WireError:
        return
    if decoded.kind == wire.KIND_CALL and all(t.dtype != bool for t in decoded.tensors):
        # What was accepted is a frame, so it encodes to itself.
        assert wire.encode_call(decoded.call_id, decoded.code, decoded.tensors) == bytes(mutated)


NAMEDTUPLES = [
    collections.namedtuple("EnvOutput", "reward done observation"),  # noqa: PYI024
    collections.namedtuple("Pair", "a b"),  # noqa: PYI024
]
SPECS = st.builds(
    TensorSpec,
    dtype=st.sampled_from(wire.DTYPE_NAMES),
    shape=st.none() | st.lists(st.none() | st.integers(0, 2**40), max_size=4).map(tuple),
    name=st.text(max_size=5),
)


def _structures(children):
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), children, max_size=3),
        st.tuples(children, children, children).map(lambda c: NAMEDTUPLES[0](*c)),
        st.tuples(children, children).map(lambda c: NAMEDTUPLES[1](*c)),
    )


STRUCTURES = st.recursive(SPECS | st.none(), _structures, max_leaves=10)


def same_structure(a, b):
    if nest.is_namedtuple(a):
        named = type(a).__name__ == type(b).__name__ and a._fields == b._fields
        return named and all(map(same_structure, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_structure(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_structure, a, b))
    return a == b


@hypothesis.given(STRUCTURES)
def test_structures_come_back(structure):
    """Nests survive the JSON of Describe, with their types, names and field order."""
    assert same_structure(structures.from_json(structures.to_json(structure)), structure)


@hypothesis.given(STRUCTURES)
def test_values_are_taken_apart_and_put_together_alike(structure):
    """The order in which leaves travel is the same for arguments and outputs."""
    counter = iter(range(1000))
    value = nest.map_structure(lambda leaf: None if leaf is None else next(counter), structure)
    leaves = []
    structures.unpack(structure, value, leaves, "arg[0]")
    assert leaves == list(range(len(structures.specs(structure))))
    assert same_structure(structures.pack(structure, leaves), value)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_replies_of_the_wrong_length_are_refused(count):
    """A reply with missing or surplus tensors is an error, not a shifted result."""
    structure = (TensorSpec("int32", ()), None, TensorSpec("int32", ()))
    with pytest.raises(WireError, match=f"{count} tensors, not 2"):
        structures.pack(structure, [np.zeros(())] * count)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"tensor": {"dtype": "float32", "shape": []}, "none": True},
        {"tensor": {"dtype": "complex64", "shape": []}},
        {"tensor": {"dtype": "float32", "shape": [-1]}},
        {"tensor": {"dtype": "float32", "shape": [True]}},
        {"tensor": {"dtype": "float32", "shape": 3}},
        {"tuple": {"none": True}},
        {"dict": {"keys": ["a"], "values": []}},
        {"dict": {"keys": ["a", "a"], "values": [{"none": True}, {"none": True}]}},
        {"namedtuple": {"name": "A", "fields": ["a b"], "values": [{"none": True}]}},
        {"namedtuple": {"name": "import os", "fields": [], "values": []}},
        {"set": []},
    ],
)
def test_malformed_structures_are_refused(tree):
    """A malicious description only raises the documented exception."""
    with pytest.raises(WireError):
        structures.from_json(tree)


def test_deep_structures_are_refused():
    """A hostile description does not overflow the stack."""
    tree = {"none": True}
    for _ in range(5000):
        tree = {"tuple": [tree]}
    with pytest.raises(WireError, match="deep"):
        structures.from_json(tree)
