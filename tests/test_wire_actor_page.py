"""The exchange that docs/wire_actor.md shows is what the actor and the native server say."""

from __future__ import annotations

import json
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seed_rl import conformance
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.acting.env_group import EnvGroup
from seed_rl.common.acting.spaces import describe
from seed_rl.grpc import wire
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.numpy_client import Client

RUN_ID = 0x0123456789ABCDEF
CALL = ("env_ids", "run_ids", "reward", "done", "observation", "abandoned", "episode_step")
CALL += ("raw_rewards", "successes")
QUOTE = r"^\*\*([A-Z]\w+(?: \d+)?)\*\*[^\n]*\n\n```\w*\n(.*?)\n```$"


def text(message: bytes) -> str:
    """A frame as the page shows it: header, tensors and payloads in hex."""
    frame = wire.decode(message)
    names, at = CALL if frame.kind == wire.KIND_CALL else ("action",), 24
    lines = [f"{'header':13}{message[:24].hex(' ', -4)}"]
    for name, tensor in zip(names, frame.tensors, strict=True):
        begin = at + 16 + 8 * tensor.ndim
        lines.append(f"{name:13}{message[at:begin].hex(' ', -4)}")
        at = begin + tensor.nbytes
        lines.append(f"{'':13}{message[begin:at].hex(' ', -4)}")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_exchange(repository: Any, socket_address: str, monkeypatch: Any) -> None:
    """Guards each byte: Describe, the first call and its reply, and the end of an episode."""
    sent: list[bytes] = []
    received: list[bytes] = []
    encode, decode = wire.encode_call, wire.decode
    monkeypatch.setattr(wire, "encode_call", lambda *args: sent.append(encode(*args)) or sent[-1])
    monkeypatch.setattr(wire, "decode", lambda data: received.append(data) or decode(data))
    envs = BatchedEnvironment(lambda env_id, config: gymnasium.make("CartPole-v1"), 2, 2)
    with conformance.Learner(socket_address, conformance.Part()) as learner:
        with Client(socket_address, ClientOptions(token="right")) as client:
            group = EnvGroup(envs)
            group.reset(seed=1)
            group.begin(client.functions["inference"], RUN_ID)
            while True:
                actions = group.actions()
                if np.any(group._report[0].done):
                    break
                group.step(actions)
                group.send()
            description = client.describe()
        learner.check()
    monkeypatch.undo()
    shown = {
        "Describe": json.dumps({**description, "version": "0.1.0"}, indent=1),
        "Call 1": text(sent[0]),
        "Reply 1": text(received[0]),
        f"Call {len(sent)}": text(sent[-1]),
    }
    page = (repository / "docs" / "wire_actor.md").read_text()
    quoted = dict(re.findall(QUOTE, page, re.MULTILINE | re.DOTALL))
    quoted["Describe"] = json.dumps(json.loads(quoted["Describe"]), indent=1)
    assert quoted == shown


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(2),
        spaces.MultiDiscrete([3, 2]),
        spaces.Box(-1.0, 1.0, (6,), np.float32),
        spaces.Box(np.array([-1, 0], np.float32), np.ones(2, np.float32)),
        spaces.Dict(move=spaces.Discrete(3), force=spaces.Box(-1.0, 1.0, (2,), np.float32)),
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
    ],
)
def test_the_texts_of_action_spaces(repository: Any, space: Any) -> None:
    page = (repository / "docs" / "wire_actor.md").read_text()
    assert f"`{describe(space)}`" in page
