"""Where several learners are."""

from __future__ import annotations

import pytest

from seed_rl.cluster import learners
from seed_rl.common.errors import UserError


def test_the_address_of_each():
    assert learners.split("a:1, b:2", 2) == ["a:1", "b:2"]
    assert learners.split("set-{}.x:86", 3) == ["set-0.x:86", "set-1.x:86", "set-2.x:86"]
    assert [learners.nth("a:1,b:2", i) for i in range(2)] == ["a:1", "b:2"]


def test_a_learner_without_an_address():
    with pytest.raises(UserError, match="'a:1,b:2' has no address of learner 2"):
        learners.nth("a:1,b:2", 2)


def test_exchange_at_ports_of_their_own():
    found = learners.flags(["a:8686", "[fd00::1]:86"], 1)
    assert found == ["--learner_addresses=a:8786,[fd00::1]:186", "--learner_index=1"]
