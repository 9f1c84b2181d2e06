"""Storage of unrolls: lossless, first in first out, keyed."""

import threading
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seed_rl.common import nest
from seed_rl.common.errors import UserError
from seed_rl.common.replay.specs import FieldSpec, Layout
from seed_rl.common.replay.storage import UnrollStorage
from seed_rl.common.types import EnvOutput
from tests.helpers.replays import stored

_DTYPES = st.sampled_from(
    ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64", "float16"]
    + ["float32", "float64", "complex64", "complex128", ">i4", "M8[s]"]
)


@st.composite
def specs(draw: Any) -> Any:
    """Nests of fields small and large, with and without time."""
    steps = draw(st.integers(1, 9))

    def field() -> FieldSpec:
        shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5]), max_size=2)))
        shape += draw(st.sampled_from([(), (), (300,)]))
        timed = draw(st.booleans())
        return FieldSpec((steps, *shape) if timed else shape, draw(_DTYPES), timed)

    fields = [field() for _ in range(draw(st.integers(1, 4)))]
    return {"b": tuple(fields[1:]), "a": [fields[0], ()]}


def random_values(layout: Layout, rng: np.random.Generator, size: int) -> Any:
    """A batch of unrolls: noise, constants or slow changes."""
    arrays = []
    for field in layout.fields:
        shape, dtype = field.batch_shape(size), np.dtype(field.dtype)
        count = int(np.prod(shape)) * dtype.itemsize
        kind = rng.integers(3)
        if kind == 0:
            raw = rng.integers(256, size=count).astype(np.uint8)
        elif kind == 1:
            raw = np.full(count, rng.integers(256), np.uint8)
        else:
            raw = (np.arange(count) // 7).astype(np.uint8)
        if dtype == np.bool_:
            raw %= 2
        arrays.append(raw.view(dtype).reshape(shape))
    return layout.pack(arrays)


def unroll(layout: Layout, values: Any, index: int) -> list[bytes]:
    """One unroll of a batch, as bytes (so that NaN equals itself)."""
    return [
        np.take(array, index, axis=1 if field.time else 0).tobytes()
        for field, array in zip(layout.fields, nest.flatten(values), strict=True)
    ]


@hypothesis.settings(max_examples=80, deadline=None, derandomize=True)
@hypothesis.given(
    specs=specs(),
    seed=st.integers(0, 1000),
    level=st.sampled_from([0, 1, 5]),
)
def test_any_nest_comes_back_as_it_was(specs: Any, seed: int, level: int) -> None:
    """Guards lossless storage for every dtype, shape and filter."""
    rng = np.random.default_rng(seed)
    layout = Layout(specs)
    storage = UnrollStorage(layout, 8, compression_level=level)
    values = random_values(layout, rng, 3)
    keys = storage.insert(values, np.ones(3))
    np.testing.assert_array_equal(keys, [0, 1, 2])
    drawn, keys, _, _ = storage.draw(rng.random(5))
    for i, key in enumerate(keys):
        assert unroll(layout, drawn, i) == unroll(layout, values, int(key))
    for field, array in zip(layout.fields, nest.flatten(drawn), strict=True):
        assert array.dtype == field.dtype
        assert array.shape == field.batch_shape(5)


class StorageMachine(RuleBasedStateMachine):
    """Storage against a dictionary, in random order of everything it can do."""

    CAPACITY = 7

    def __init__(self) -> None:
        super().__init__()
        self.layout = Layout({"x": FieldSpec((3, 20), np.uint8), "y": FieldSpec((2,), np.int32)})
        self.storage = self.new_storage()
        self.model: dict[int, tuple[list[bytes], float]] = {}
        self.next_key = 0
        self.rng = np.random.default_rng(0)

    def new_storage(self) -> UnrollStorage:
        # Segments of about two unrolls, so that they come and go.
        return UnrollStorage(self.layout, self.CAPACITY, 1.0, 1, segment_bytes=100)

    @rule(size=st.integers(1, 10), whole=st.integers(0, 3))
    def insert(self, size: int, whole: int) -> None:
        values = random_values(self.layout, self.rng, size)
        priorities = self.rng.integers(0, 3, size).astype(np.float64) * whole
        keys = self.storage.insert(values, priorities)
        assert list(keys) == list(range(self.next_key, self.next_key + size))
        for i, key in enumerate(keys):
            self.model[int(key)] = (unroll(self.layout, values, i), priorities[i])
        self.next_key += size
        for key in [k for k in self.model if k < self.next_key - self.CAPACITY]:
            del self.model[key]

    @rule(offset=st.integers(-12, 3), count=st.integers(1, 5))
    def update(self, offset: int, count: int) -> None:
        """Late priorities, too: slots of evicted unrolls have new ones, whose keys are others."""
        late = self.storage.stats().late_updates
        keys = np.append(np.arange(count) + max(0, self.next_key + offset), [-1, 1 << 60])
        priorities = self.rng.integers(0, 4, len(keys)).astype(np.float64)
        updated = self.storage.update_priorities(keys, priorities)
        assert updated == sum(int(key) in self.model for key in keys)
        assert self.storage.stats().late_updates == late + len(keys) - updated
        for key, priority in zip(keys, priorities, strict=True):
            if int(key) in self.model:
                self.model[int(key)] = (self.model[int(key)][0], priority)

    @precondition(lambda self: self.model)
    @rule()
    def draw(self) -> None:
        drawn, keys, probabilities, size = self.storage.draw(self.rng.random(4))
        total = sum(priority for _, priority in self.model.values())
        assert size == len(self.model)
        for i, key in enumerate(keys):
            content, priority = self.model[int(key)]
            assert unroll(self.layout, drawn, i) == content
            expected = priority / total if total else 1 / len(self.model)
            assert probabilities[i] == pytest.approx(expected) and expected > 0

    @precondition(lambda self: self.model)
    @rule()
    def look(self) -> None:
        values, priorities = stored(self.storage, np.array(sorted(self.model), np.int64))
        for i, content in enumerate(map(self.model.get, sorted(self.model))):
            assert (unroll(self.layout, values, i), priorities[i]) == content

    @precondition(lambda self: self.model)
    @rule()
    def replace_by_its_snapshot(self) -> None:
        snapshot = self.storage.snapshot()
        fresh = self.new_storage()
        for segment in snapshot.segments():
            fresh.restore_segment(segment)
        with pytest.raises(ValueError, match="priorities"):
            fresh.restore_entries(-1.0 - snapshot.priorities, snapshot.inserted_at)
        fresh.restore_entries(snapshot.priorities, snapshot.inserted_at)
        self.storage = fresh

    @rule(exponent=st.sampled_from([1.0]))
    def set_exponent(self, exponent: float) -> None:
        self.storage.set_priority_exponent(0.5)
        self.storage.set_priority_exponent(exponent)

    @invariant()
    def agrees(self) -> None:
        stats = self.storage.stats()
        assert stats.next_key - stats.oldest_key == len(self.model)
        assert stats.next_key == self.next_key
        assert stats.total_priority == sum(priority for _, priority in self.model.values())


StorageMachine.TestCase.settings = hypothesis.settings(
    max_examples=30, stateful_step_count=25, deadline=None, derandomize=True
)
test_agrees_with_a_dictionary = StorageMachine.TestCase


def insert_numbers(storage: UnrollStorage, numbers: np.ndarray) -> np.ndarray:
    """Unrolls of one field <int64>[2, 8] filled with each number."""
    values = np.broadcast_to(numbers[None, :, None], (2, len(numbers), 8)).copy()
    return storage.insert(values, np.ones(len(numbers)))


def test_threads_never_see_torn_or_foreign_unrolls() -> None:
    """Guards the locking: inserting, drawing, updating and snapshots at once, many wrap-arounds."""
    layout = Layout(FieldSpec((2, 8), np.int64))
    storage = UnrollStorage(layout, 50, segment_bytes=400)
    insert_numbers(storage, np.arange(50))
    errors: list[BaseException] = []
    done = threading.Event()

    def run(work: Any) -> None:
        try:
            rng = np.random.default_rng(0)
            while not done.is_set():
                work(rng)
        except BaseException as error:
            errors.append(error)

    def draw(rng: np.random.Generator) -> None:
        drawn, keys, _, _ = storage.draw(rng.random(16))
        np.testing.assert_array_equal(drawn, np.tile(keys[:, None], (2, 1, 8)))

    def update(rng: np.random.Generator) -> None:
        newest = storage.stats().next_key
        storage.update_priorities(newest - rng.integers(0, 100, 8), rng.random(8))

    def snapshot(rng: np.random.Generator) -> None:
        snapshot = storage.snapshot()
        fresh = UnrollStorage(layout, 50, priority_exponent=0.0)
        for segment in snapshot.segments():
            fresh.restore_segment(segment)
        fresh.restore_entries(snapshot.priorities, snapshot.inserted_at)
        values, keys, _, _ = fresh.draw((np.arange(50) + 0.5) / 50)
        assert sorted(keys) == list(range(snapshot.oldest_key, snapshot.next_key))
        np.testing.assert_array_equal(values[0, :, 0], keys)

    threads = [threading.Thread(target=run, args=(w,)) for w in (draw, draw, update, snapshot)]
    for thread in threads:
        thread.start()
    for start in range(50, 20_000, 10):
        insert_numbers(storage, np.arange(start, start + 10))
    done.set()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_memory_limit_evicts_the_oldest() -> None:
    """Guards the machine's memory when unrolls compress worse than was assumed."""
    layout = Layout(FieldSpec((1000,), np.uint8, time=False))
    storage = UnrollStorage(layout, 1000, max_bytes=200_000, segment_bytes=20_000)
    rng = np.random.default_rng(0)
    for _ in range(50):
        storage.insert(rng.integers(256, size=(10, 1000)).astype(np.uint8), np.ones(10))
        assert storage.stats().total_bytes <= 200_000
    stats = storage.stats()
    assert stats.next_key == 500
    assert 100 < len(storage) < 200
    assert stats.evicted_early == 500 - len(storage)
    _, keys, _, _ = storage.draw(np.arange(1000) / 1000)
    assert set(keys) == set(range(stats.oldest_key, 500)), "none of those evicted"


def test_bytes_are_all_accounted_for() -> None:
    """Guards the statistics that users size their machines by."""
    layout = Layout((FieldSpec((100, 100), np.uint8), FieldSpec((3,), np.float32, time=False)))
    storage = UnrollStorage(layout, 64)
    values = (np.zeros((100, 10, 100), np.uint8), np.ones((10, 3), np.float32))
    for _ in range(20):
        storage.insert(values, np.ones(10))
    stats = storage.stats()
    assert stats.raw_bytes == 64 * (10_000 + 12)
    snapshot = storage.snapshot()
    sizes = np.concatenate([np.diff(s.ends, prepend=0) for s in snapshot.segments()])
    assert stats.payload_bytes == sizes[-64:].sum()
    assert stats.payload_bytes < stats.raw_bytes / 50
    fixed = 64 * 2 * 8 + 64 * 2 * 8  # Priorities and times; the tree.
    assert stats.payload_bytes + fixed < stats.total_bytes < stats.payload_bytes + fixed + 20_000


def test_counters_compress() -> None:
    """Guards the filters: steps counted up are nothing but noise to zstd without them."""
    layout = Layout(FieldSpec((1000,), np.int64))
    storage = UnrollStorage(layout, 4)
    storage.insert(np.arange(10**9, 10**9 + 1000)[:, None], np.ones(1))
    assert storage.stats().payload_bytes < 100


def test_batches_in_use_are_not_written_over() -> None:
    """Guards the reuse of memory: only when the arrays and all their views are gone."""
    storage = UnrollStorage(Layout(FieldSpec((2, 8), np.int64)), 4)
    insert_numbers(storage, np.arange(4))
    kept = storage.draw(np.array([0.1]))[0][1:]
    for _ in range(10):
        storage.draw(np.array([0.9]))
    np.testing.assert_array_equal(kept, np.zeros((1, 1, 8)))
    freed = kept.ctypes.data
    del kept
    again = {storage.draw(np.array([0.5]))[0][1:].ctypes.data for _ in range(10)}
    assert freed in again


def test_arrays_are_aligned() -> None:
    """Guards the hand-over without a copy: TensorFlow takes arrays at 64 bytes as they are."""
    layout = Layout((FieldSpec((3,), np.uint8), FieldSpec((5,), np.float32)))
    storage = UnrollStorage(layout, 4)
    storage.insert((np.zeros((3, 1), np.uint8), np.zeros((5, 1), np.float32)), np.ones(1))
    for array in storage.draw(np.array([0.5]))[0]:
        assert array.ctypes.data % 64 == 0


def test_damaged_segment_is_refused() -> None:
    """Guards the native code from records that would make it read outside."""
    layout = Layout(FieldSpec((2, 8), np.int64))
    storage = UnrollStorage(layout, 8)
    insert_numbers(storage, np.arange(8))
    (segment,) = storage.snapshot().segments()
    for damage in ("data", "ends"):
        part = getattr(segment, damage).copy()
        part[0] += 1
        with pytest.raises(ValueError, match="damaged"):
            UnrollStorage(layout, 8).restore_segment(
                type(segment)(**{**vars(segment), damage: part})
            )


def test_wrong_values_are_named() -> None:
    """Guards the message for the most common mistake: a wrong dtype or shape."""
    step = EnvOutput(
        *[
            FieldSpec((4, *shape), dtype)
            for shape, dtype in [((), "f4"), ((), "?"), ((2,), "u1"), ((), "?"), ((), "i4")]
        ]
    )
    layout = Layout(step)
    values = nest.map_structure(lambda s: np.zeros(s.batch_shape(3), s.dtype), step)
    storage = UnrollStorage(layout, 8)
    storage.insert(values, np.ones(3))
    wrong_dtype = values._replace(observation=np.zeros((4, 3, 2), np.float32))
    with pytest.raises(ValueError, match=r"values.observation must be uint8\[4, -1, 2\].*float32"):
        storage.insert(wrong_dtype, np.ones(3))
    with pytest.raises(ValueError, match=r"values.done must be bool"):
        storage.insert(values._replace(done=np.zeros((4, 2), bool)), np.ones(3))
    with pytest.raises(ValueError, match="fields"):
        storage.insert(values[:3], np.ones(3))
    with pytest.raises(ValueError, match="priorities"):
        storage.insert(values, np.ones(2))
    assert len(storage) == 3


@pytest.mark.parametrize("dtype", [object, "S5", "U3"])
def test_dtypes_that_cannot_be_stored_are_a_user_error(dtype: Any) -> None:
    """Guards the message for observations such as text."""
    with pytest.raises(UserError, match="cannot store.*'text'"):
        Layout({"text": FieldSpec((3,), dtype)})


def test_empty_storage_has_nothing_to_draw() -> None:
    """Guards against undefined memory as a batch."""
    with pytest.raises(ValueError, match="empty"):
        UnrollStorage(Layout(FieldSpec((2,), np.uint8)), 4).draw(np.array([0.5]))
