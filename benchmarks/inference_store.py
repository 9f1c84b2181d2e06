"""Measures whether several inference batches at once are recorded faster than one after another.

    python -m benchmarks.inference_store [--json=FILE] [--threads=2]

Each thread has environments of its own and does what inference does for a batch of Atari steps, but
for the network: `begin`, `end`, and `dequeue` of the unrolls that are complete. What two threads
record beyond one is what a second inference device can add.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks import report
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.types import EnvOutput

BATCH, UNROLL_LENGTH = 128, 20
FRAMES = tf.TensorSpec([84, 84, 4], tf.uint8)


def main() -> None:
    """Runs the benchmark."""
    parser = report.parser(__doc__ or "", seconds=3)
    parser.add_argument("--threads", type=int, default=2, help="at once (%(default)s)")
    options = parser.parse_args()
    store = _store(options.threads * BATCH)
    workers = [_worker(store, i) for i in range(options.threads)]

    def steps_per_s(threads: int) -> float:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            end = time.perf_counter() + options.seconds
            counts = pool.map(lambda work: _count(work, end), workers[:threads])
            return sum(counts) * BATCH * UNROLL_LENGTH / options.seconds

    contestants = {n: lambda n=n: steps_per_s(n) for n in (1, options.threads)}
    results = report.interleave(contestants, options.rounds)
    ratio = report.median_ratio(results[options.threads], results[1])
    rows = [[n, max(rates)] for n, rates in results.items()]
    report.print_table("Steps recorded", ["threads", "steps/s (best)"], rows)
    print(f"{options.threads} threads / 1: {ratio:.2f}")
    report.write_json(options.json, {"threads_over_one": ratio, "rounds": results})


def _store(num_envs: int) -> InferenceStore:
    return InferenceStore(
        num_envs=num_envs,
        num_training_envs=num_envs,
        unroll_length=UNROLL_LENGTH,
        num_overlapping_steps=0,
        queue_capacity=2 * num_envs,
        action_specs=tf.TensorSpec([], tf.int32),
        initial_state=tf.zeros([1, 512]),
        step_specs=FRAMES,
    )


def _worker(store: InferenceStore, index: int) -> Callable[[], object]:
    """Records as many steps of each of this worker's environments as an unroll has."""
    ids = tf.range(index * BATCH, (index + 1) * BATCH)
    runs = tf.ones([BATCH], tf.int64)
    frames = tf.zeros([BATCH, *FRAMES.shape], FRAMES.dtype)
    flags, zeros = tf.zeros([BATCH], tf.bool), tf.zeros([BATCH])
    outputs = EnvOutput(zeros, flags, frames, flags, tf.ones([BATCH], tf.int32))

    @tf.function
    def step() -> None:
        actions, state = store.begin(ids, runs, outputs, zeros)
        store.end(ids, runs, actions, state, frames)

    @tf.function
    def take() -> tf.Tensor:
        return store.dequeue(BATCH).env_ids

    def work() -> None:
        for _ in range(UNROLL_LENGTH):
            step()
        take()

    step()  # An unroll has one more step, which it shares with the next.
    return work


def _count(work: Callable[[], object], end: float) -> int:
    count = 0
    while time.perf_counter() < end:
        work()
        count += 1
    return count


if __name__ == "__main__":
    main()
