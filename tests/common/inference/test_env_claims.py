"""Environment ids for actors without a --task."""

from __future__ import annotations

import numpy as np

from seed_rl.common.inference.env_claims import EnvClaims
from tests.helpers.clock import Clock


def test_ids_are_handed_out_once_and_again_after_silence():
    """Guards against two actors with one id, and against ids that a dead actor keeps forever."""
    silence, clock = np.full(6, np.nan, np.float32), Clock(100.0)
    silence[1] = 5.0  # Of an actor with a --task.
    claims = EnvClaims(lambda: silence, lease_s=60.0, clock=clock)
    assert claims.claim(2).tolist() == [0, 2]
    assert claims.claim(2).tolist() == [3, 4]
    assert claims.claim(2).tolist() == []  # Only 5 is left: all or nothing.
    silence[[0, 2]] = 0.1
    clock.now += 61
    silence += 61
    silence[2] = 3.0
    # 0 and 1 are silent, 2 calls, 3 and 4 never did, 5 was never handed out.
    assert claims.claim(5).tolist() == []
    clock.now += 10
    silence += 10
    assert claims.claim(5).tolist() == [0, 1, 3, 4, 5]
    assert claims.claim(1).tolist() == []


def test_a_stall_of_the_learner_ends_no_lease():
    """Guards live actors: until their next calls, the store counts a stall as their silence."""
    silence, clock = np.zeros(2, np.float32), Clock(1000.0)
    claims = EnvClaims(lambda: silence, lease_s=60.0, grace_s=10.0, clock=clock)
    for _ in range(2):  # The grace begins anew after calls that no claim has seen.
        silence[:] = 100.0
        assert claims.claim(1).tolist() == []
        clock.now += 5
        silence += 5
        assert claims.claim(1).tolist() == []
        clock.now += 200
    silence[:] = [0.1, 105]  # One calls.
    assert claims.claim(1).tolist() == []
    clock.now += 10
    silence += 10
    assert claims.claim(2).tolist() == []
    assert claims.claim(1).tolist() == [1]


def test_those_unused_for_longest_come_first():
    """Guards an actor that takes longer than a lease to create its environments."""
    silence, clock = np.full(6, np.nan, np.float32), Clock(1000.0)
    claims = EnvClaims(lambda: silence, lease_s=60.0, grace_s=10.0, clock=clock)
    assert claims.claim(2).tolist() == [0, 1]
    clock.now += 90
    assert claims.claim(2).tolist() == [2, 3]
    clock.now += 90
    silence[3] = 70.0
    assert claims.claim(3).tolist() == [0, 4, 5]


def test_counts_that_cannot_be():
    claims = EnvClaims(lambda: np.full(2, np.nan))
    assert claims.claim(3).tolist() == claims.claim(0).tolist() == claims.claim(-1).tolist() == []


def test_the_function_for_clients():
    claim = EnvClaims(lambda: np.full(3, np.nan)).function()
    assert claim(np.int32(2)).numpy().tolist() == [0, 1]
    assert claim(np.int32(2)).numpy().dtype == np.int32
    assert claim(np.int32(1)).numpy().tolist() == [2]
