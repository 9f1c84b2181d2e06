"""The actor as programs of the original call it."""

import pytest
from absl import flags

from seed_rl.common import actor
from tests.helpers.actor_runs import Recorder, make, serve


def test_options_of_the_environment_and_of_the_actor(monkeypatch):
    """Guards that `config` reaches the environments alone; the actor's options are the flags'."""
    recorder = Recorder(calls=2)
    with serve(recorder) as learner:
        values = flags.FlagValues()
        flags.DEFINE_string("server_address", learner.address, "", flag_values=values)
        flags.DEFINE_integer("task", 1, "", flag_values=values)
        flags.DEFINE_integer("env_batch_size", 2, "", flag_values=values)
        values(["program"])
        monkeypatch.setattr(flags, "FLAGS", values)
        configs = []
        with pytest.raises(SystemExit):
            actor.actor_loop(lambda i, config: configs.append(config) or make(i), "my config", 5)
        assert actor.are_summaries_enabled() is False  # Task 1; only task 0 by default.
    assert configs == ["my config"] * 2
    assert recorder.calls[0][0].tolist() == [2, 3]
