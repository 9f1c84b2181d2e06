"""Flags and options as existing programs define and hand them around."""

import dataclasses
import json
import subprocess
import sys
import textwrap
import types

import pytest
import tensorflow as tf

from seed_rl.atari.env import AtariConfig
from seed_rl.common import utils
from seed_rl.common.config import options
from seed_rl.common.errors import UserError


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


FLAGS_OF_A_PROGRAM = """
    import sys
    from absl import flags
    {before}
    from seed_rl.common import common_flags
    from seed_rl.atari import env
    {after}
    assert "tensorflow" not in sys.modules
    from seed_rl.common import actor, utils
    from seed_rl.common.config import options
    F = flags.FLAGS
    F(sys.argv)
    actor_config = options.from_flags(actor.ActorConfig)
    game = options.as_config(env.AtariConfig, None)
    print(F.run_mode, F.batch_size, F.logdir, actor_config.task, game.game)
    print(F.num_action_repeats, utils.config_from_flags()["game"])
"""
OWN_FLAG = 'flags.DEFINE_integer("batch_size", 3, "Mine.")'
OWN_CLASS = (
    "from seed_rl.common.config import options; "
    "from seed_rl.common.config.learner_config import LearnerConfig; "
    "options.define_flags(LearnerConfig, batch_size=3)"
)


@pytest.mark.parametrize(
    ("before", "after", "batch_size"),
    [("", "", 32), (OWN_FLAG, "", 3), ("", OWN_FLAG, 3), (OWN_CLASS, "", 3), ("", OWN_CLASS, 3)],
)
def test_flags_come_with_the_imports_and_give_way_to_the_program(before, after, batch_size):
    """Guards each order of definitions; and that actors need no TensorFlow for any of it."""
    program = FLAGS_OF_A_PROGRAM.format(before=before, after=after)
    result = run(program, "--run_mode=actor", "--job-dir=/x", "--task=2", "--game=Breakout")
    assert result.stdout.splitlines() == [f"actor {batch_size} /x 2 Breakout", "4 Breakout"], (
        result.stderr
    )


def test_two_definitions_of_a_program_are_still_an_error():
    result = run(f"from absl import flags\n{OWN_FLAG}\n{OWN_CLASS}")
    assert "DuplicateFlagError" in result.stderr


def test_user_errors_end_existing_programs_with_one_line():
    result = run(
        """
        from absl import app
        from seed_rl.common import common_flags
        from seed_rl.common.errors import UserError
        def main(_):
            raise UserError("Choose another --logdir.")
        app.run(main)
        """
    )
    assert (result.returncode, result.stderr) == (2, "error: Choose another --logdir.\n")


def test_as_config_takes_what_existing_programs_pass():
    assert options.as_config(AtariConfig, None) == AtariConfig()
    known = AtariConfig(game="Qbert")
    assert options.as_config(AtariConfig, known) is known
    assert options.as_config(AtariConfig, {"game": "Qbert", "other": 1}) == known
    assert options.as_config(AtariConfig, types.SimpleNamespace(game="Qbert")) == known


class Server:
    """What an actor's client sees."""

    def __init__(self, answer):
        self._answer = answer

    def get_config(self):
        return self._answer


def test_options_travel_from_learner_to_actor():
    sent = utils.serialize_config({"game": "Qbert", "width": 84, "task": 0, "callback": len})
    assert sent.dtype == tf.string and sent.shape == []
    assert json.loads(sent.numpy()) == {"game": "Qbert", "width": 84, "task": 0}

    here = {"game": "Pong", "task": 7}
    assert utils.update_config(here, Server(sent)) is here
    assert here == {"game": "Qbert", "width": 84, "task": 7}, "`task` is each process's own"
    assert utils.update_config(AtariConfig(), Server(sent.numpy())) == AtariConfig(game="Qbert")
    thing = types.SimpleNamespace(game="Pong", task=7)
    assert vars(utils.update_config(thing, Server(sent))) == {"game": "Qbert", "task": 7}


def test_every_dataclass_of_options_survives_the_way():
    sent = utils.serialize_config(AtariConfig(game="Qbert", max_random_noops=0))
    assert utils.update_config(AtariConfig(), Server(sent)) == AtariConfig(
        **{**dataclasses.asdict(AtariConfig()), "game": "Qbert", "max_random_noops": 0}
    )


def test_a_learner_without_options_changes_nothing():
    here = {"game": "Pong"}
    assert utils.update_config(here, object()) == {"game": "Pong"}


@pytest.mark.parametrize("answer", [b"\x80\x04K\x01.", b"[1, 2]", b"", 7])
def test_what_is_no_json_object_is_refused(answer):
    """Guards that nothing but JSON is read: the first is a pickle."""
    with pytest.raises(UserError, match="get_config"):
        utils.update_config({}, Server(answer))


def test_validate_learner_config():
    good = {"num_envs": 8, "env_batch_size": 2, "num_eval_envs": 2, "batch_size": 4}
    utils.validate_learner_config(good, num_hosts=2)
    with pytest.raises(UserError, match="--env_batch_size=16"):
        utils.validate_learner_config({**good, "env_batch_size": 16})
    with pytest.raises(UserError, match="--num_eval_envs=8"):
        utils.validate_learner_config({**good, "num_eval_envs": 8})
    with pytest.raises(UserError, match="--num_envs=8.*3 hosts"):
        utils.validate_learner_config({**good, "batch_size": 6}, num_hosts=3)
