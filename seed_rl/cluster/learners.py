"""Several learners of one run (`--learners=N`): where each is.

ACTORS and the evaluators are those of the whole run, divided among the learners in order. Actors
reach learner i at the i-th address; the learners exchange gradients at the same hosts, at ports of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from seed_rl.common.errors import UserError

PORTS_APART = 100
"""Distance from the port at which a learner serves up to that at which it exchanges gradients."""

_INDEX = "{}"


def nth(addresses: str, index: int) -> str:
    """The address of one learner, of `a:1,b:1` or `learner-{}:1`.

    Raises:
      UserError: there are fewer.
    """
    if _INDEX in addresses:
        return addresses.replace(_INDEX, str(index))
    listed = addresses.split(",")
    if index >= len(listed):
        raise UserError(f"'{addresses}' has no address of learner {index}.")
    return listed[index].strip()


def split(addresses: str, learners: int) -> list[str]:
    """The addresses of all learners.

    Raises:
      UserError: there are more or fewer.
    """
    count = learners if _INDEX in addresses else len(addresses.split(","))
    if count != learners:
        raise UserError(
            f"--learners={learners} and '{addresses}' do not match: SEED_RL_ADDRESS must list the "
            "HOST:PORT of each learner, separated by commas, or contain {} in place of the "
            "index, as in learner-{}:8686."
        )
    return [nth(addresses, index) for index in range(learners)]


def flags(addresses: Sequence[str], index: int) -> list[str]:
    """The flags of learner `index` and of its actors.

    Args:
      addresses: HOST:PORT of all learners, as actors reach them.
      index: of the learner.

    Raises:
      UserError: there is no room for a second port.
    """
    exchange = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) + PORTS_APART >= 2**16:
            raise UserError(
                f"'{address}' is not the address of one of several learners: it must be "
                f"HOST:PORT, with room for the port {PORTS_APART} above, where learners exchange "
                "gradients."
            )
        exchange.append(f"{host}:{int(port) + PORTS_APART}")
    return [f"--learner_addresses={','.join(exchange)}", f"--learner_index={index}"]
