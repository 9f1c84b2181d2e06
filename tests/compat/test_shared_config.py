"""Options that travel from learner to actor."""

import json
import types

import pytest
import tensorflow as tf

from seed_rl.atari.env import AtariConfig
from seed_rl.common import utils
from seed_rl.common.errors import UserError


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
