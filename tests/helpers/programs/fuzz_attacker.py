"""Sends fuzzed bytes to fuzz_server.py: `python fuzz_attacker.py ADDRESS SEED MESSAGES`.

Half of the messages are valid frames with something changed where it matters; the rest are cut,
spliced, of the wrong type or pure noise. The NumPy codec and `_fits` tell what they are: each is
answered exactly once, a valid call with the right result and everything else with an error under
the right call id.

Prints a JSON object that counts messages and answers; exits with 1 and the first violations if the
server broke a rule.
"""

import json
import random
import struct
import sys
import threading

import grpc
import numpy as np

from seed_rl.grpc import structures, wire
from seed_rl.grpc.errors import StatusCode, WireError
from seed_rl.grpc.numpy_client import Client

MAX_MESSAGE_BYTES = 1 << 20  # As in fuzz_server.py, which cannot be imported without TensorFlow.
MAX_BATCH_SIZE = 64
LIMIT = 1000
STREAM_S = 120  # In which a stream must have ended.
STREAMS = 3
MESSAGES_PER_STREAM = 2000

INTERESTING = [0, 1, 2, 3, 13, 14, 16, 17, 63, 64, 65, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31]
INTERESTING += [2**32 - 1, 2**32, 2**40, 2**59, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]


def templates(rng):
    """Valid calls of all functions, and well-formed frames that are not."""
    numpy_rng = np.random.default_rng(rng.randrange(2**32))
    frames = []
    for rows in (None, 1, 2, 5, 64):
        lead = () if rows is None else (rows,)
        numbers = numpy_rng.integers(-9, 9, (*lead, 3), dtype=np.int32)
        flag = numpy_rng.integers(0, 2, lead).astype(bool)
        text = np.full((*lead, 2), b"text" * rng.randrange(5), object)
        frames.append((0, [numbers, flag, text]))
        frames.append((2, [numpy_rng.integers(0, LIMIT - 1, lead, dtype=np.int32)]))
    for shape in ((), (4,), (2, 0, 3), (20, 30)):
        frames.append((1, [np.full(shape, 7, np.int64), np.array(b"x" * 50, object)]))
    frames.append((1, [np.zeros(2000, np.int64), np.array(b"y" * 3000, object)]))
    frames.append((2, [np.array(LIMIT, np.int32)]))
    frames.append((2, [np.array([1, LIMIT + 5], np.int32)]))
    for dtype in ("uint8", "float32", "float64", "int8", "float16"):
        frames.append((rng.randrange(3), [np.ones(rng.randrange(4), dtype)]))
    frames.append((0, []))
    frames.append((1, [np.zeros((1,) * 16, np.int64)] * 2))
    return [wire.encode_call(0, function, tensors) for function, tensors in frames]


def field_offsets(frame):
    """(offset, struct format) of every number in a valid frame that steers its reader."""
    fields = [(4, "B"), (5, "B"), (6, "<H"), (16, "<I"), (20, "<I")]
    (count,) = struct.unpack_from("<H", frame, 6)
    offset = 24
    for _ in range(count):
        _, rank, _, _, size = struct.unpack_from("<BBHIQ", frame, offset)
        fields += [(offset, "B"), (offset + 1, "B"), (offset + 2, "<H"), (offset + 4, "<I")]
        fields.append((offset + 8, "<Q"))
        fields += [(offset + 16 + 8 * i, "<Q") for i in range(rank)]
        if frame[offset] == wire.STRING and size >= 4:
            fields.append((offset + 16 + 8 * rank, "<I"))
        offset += 16 + 8 * rank + size
    return fields


class Mutator:
    """Makes messages."""

    def __init__(self, rng):
        self._rng = rng
        self._frames = templates(rng)
        self._fields = [field_offsets(frame) for frame in self._frames]

    def message(self, call_id):
        """The next message; if it is a frame at all, its id is most probably `call_id`."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.08:
            noise = rng.randbytes(rng.randrange(200))
            return wire.MAGIC + noise if rng.random() < 0.5 else noise
        choice = rng.randrange(len(self._frames))
        frame = bytearray(self._frames[choice])
        struct.pack_into("<Q", frame, 8, call_id)
        if kind < 0.25:
            return bytes(frame)
        if kind < 0.7:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                offset, form = rng.choice(self._fields[choice])
                bits = 8 * struct.calcsize(form)
                struct.pack_into(form, frame, offset, rng.choice(INTERESTING) % 2**bits)
        elif kind < 0.8:
            for _ in range(rng.randrange(1, 6)):
                position = rng.randrange(len(frame))
                frame[position] = rng.randrange(256)
        elif kind < 0.87:
            del frame[rng.randrange(len(frame)) :]
        elif kind < 0.93:
            frame += rng.randbytes(rng.randrange(1, 40))
        else:
            other = rng.choice(self._frames)
            frame[rng.randrange(24, len(frame) + 1) :] = other[rng.randrange(len(other)) :]
        return bytes(frame)


def _fits(function, tensors):
    """Whether the server takes these arguments: if batched, all with as many rows, or with none."""
    specs = structures.specs(function.arguments)
    if len(tensors) != len(specs):
        return False
    batched = function.batch is not None
    leading = batched and tensors[0].ndim == len(specs[0].shape)
    rows = len(tensors[0]) if leading else 1
    if not 1 <= rows <= (function.batch or MAX_BATCH_SIZE):
        return False
    for tensor, spec in zip(tensors, specs, strict=True):
        if wire.dtype_name(tensor) != spec.dtype:
            return False
        if spec.shape is None:
            continue
        expected = spec.shape[1:] if batched else spec.shape
        if leading:
            expected = (rows, *expected)
        if len(expected) != tensor.ndim or any(
            wanted not in (None, size) for wanted, size in zip(expected, tensor.shape, strict=True)
        ):
            return False
    return True


class Oracle:
    """What the server has to answer."""

    def __init__(self, client):
        self._functions = list(client.functions.values())

    def expected(self, message):
        """(call id, tensors), with None for the tensors if it is to be an error."""
        if len(message) < 24 or message[:4] != wire.MAGIC:
            return wire.UNREADABLE_CALL_ID, None
        (call_id,) = struct.unpack_from("<Q", message, 8)
        return call_id, self._result(message)

    def _result(self, message):
        try:
            frame = wire.decode(message)
        except WireError:
            return None
        if frame.kind != wire.KIND_CALL or frame.code >= len(self._functions):
            return None
        function = self._functions[frame.code]
        tensors = frame.tensors
        if not _fits(function, tensors):
            return None
        if function.name != "picky":
            return tensors
        return [tensors[0] + 1] if (tensors[0] < LIMIT).all() else None


class Answers:
    """Compares the answers to the messages of a stream with the expected ones."""

    def __init__(self, violations):
        self._violations = violations
        self.expected = {}  # By call id, a list of results.
        self.counts = {"reply": 0, "error": 0}

    def expect(self, call_id, result):
        self.expected.setdefault(call_id, []).append(result)

    def compare(self, data):
        try:
            frame = wire.decode(data)
        except WireError as error:
            self._violations.append(f"the server sent a malformed frame: {error}")
            return
        self.counts["error" if frame.kind == wire.KIND_ERROR else "reply"] += 1
        results = self.expected.get(frame.call_id)
        if not results:
            self._violations.append(f"an answer to call {frame.call_id}, which was not made")
            return
        # Ids are unique but for those of noise, where the form of the answer has to decide.
        found = next((i for i, r in enumerate(results) if matches(r, frame)), None)
        result = results.pop(found or 0)
        if not results:
            del self.expected[frame.call_id]
        if found is None:
            text = f"expected {describe(result)}, got {frame.message or describe(frame.tensors)}"
            self._violations.append(f"call {frame.call_id}: {text}")


def matches(result, frame):
    if result is None:
        return frame.kind == wire.KIND_ERROR and frame.code == StatusCode.INVALID_ARGUMENT
    if frame.kind != wire.KIND_REPLY or len(frame.tensors) != len(result):
        return False
    return all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
        for a, b in zip(frame.tensors, result, strict=True)
    )


def describe(result):
    if result is None:
        return "an error"
    return [f"{tensor.dtype}{list(tensor.shape)}" for tensor in result]


def attack(channel, rng, messages, oracle, violations, totals):
    """One stream after the other, until all messages are sent.

    A stream ends when all is answered, with answers under way, or by a message that is too long.
    """
    mutator = Mutator(rng)
    sent = size = 0
    while sent < messages and not violations:
        answers = Answers(violations)
        batch = []
        for _ in range(min(MESSAGES_PER_STREAM, messages - sent)):
            message = mutator.message(rng.randrange(2**63))
            answers.expect(*oracle.expected(message))
            batch.append(message)
        sent += len(batch)
        size += sum(map(len, batch))
        end = rng.choice(("OK", "CANCELLED", "RESOURCE_EXHAUSTED"))
        if end == "RESOURCE_EXHAUSTED":
            batch.append(bytes(MAX_MESSAGE_BYTES + 1))
        found = exchange(channel, batch, answers, len(batch) // 2 if end == "CANCELLED" else None)
        if found != end:
            violations.append(f"a stream that was to end with {end} ended with {found}")
        if end == "OK" and answers.expected:
            violations.append(f"{len(answers.expected)} messages were never answered")
        for kind, count in answers.counts.items():
            totals[kind] += count
    totals["messages"] += sent
    totals["bytes"] += size


def exchange(channel, batch, answers, cancel_after):
    """Sends the messages, and cancels the stream after a number of answers; returns its status."""
    rpc = channel.stream_stream("/seed_rl.Inference/Call")(iter(batch), timeout=STREAM_S)
    try:
        for i, data in enumerate(rpc):
            answers.compare(data)
            if i == cancel_after:
                rpc.cancel()
    except grpc.RpcError:
        pass
    return rpc.code().name


def main():
    address, seed, messages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    violations = []
    totals = {"messages": 0, "bytes": 0, "reply": 0, "error": 0}
    with Client(address) as client:
        oracle = Oracle(client)
        channels = [
            grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
            for _ in range(STREAMS)
        ]
        threads = []
        for i, channel in enumerate(channels):
            rng = random.Random(seed * STREAMS + i)
            arguments = (channel, rng, messages // STREAMS, oracle, violations, totals)
            threads.append(threading.Thread(target=attack, args=arguments))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for channel in channels:
            channel.close()
    print(json.dumps({**totals, "violations": violations[:5]}))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
