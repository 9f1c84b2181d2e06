"""Random numbers of compiled training steps."""

import textwrap

import pytest

_PROGRAM = textwrap.dedent("""
    import sys
    import numpy as np
    import tensorflow as tf
    from seed_rl.common import random_numbers

    def draw():
        with random_numbers.compiled_by_xla():
            order = random_numbers.shuffle(tf.range(50))
            choices = random_numbers.categorical(tf.math.log([[0.2, 0.8]] * 1000), tf.int32)
            return order, random_numbers.normal([1000], tf.float32), choices

    tf.keras.utils.set_random_seed(int(sys.argv[1]))
    compiled = tf.function(draw, jit_compile=True)
    for _ in range(2):
        order, normal, choices = compiled()
        assert sorted(order.numpy()) == list(range(50))
        assert abs(np.mean(normal)) < 0.2 and 0.8 < np.std(normal) < 1.2
        assert choices.shape == (1000, 1) and 0.7 < np.mean(choices) < 0.9
        print(order.numpy().tolist(), float(normal[0]), choices.numpy().tolist())
""")


@pytest.fixture
def draws(forks, tmp_path):
    """`draws(seed)` returns the lines that two compiled calls print in a process of their own."""
    program = tmp_path / "draw.py"
    program.write_text(_PROGRAM)

    def draws(seed):
        return forks.run(program, str(seed), code=0).stdout.split("\n")[:2]

    return draws


def test_compiled_numbers_follow_the_seed(draws):
    """Guards studies over seeds: XLA's own numbers are the same in every process."""
    first, again, other = draws(1), draws(1), draws(2)
    assert first == again
    assert len({*first, *other}) == 4
