"""Options of a run."""

from __future__ import annotations

import pytest

from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@pytest.mark.parametrize("address", ["foo", "localhost", ":x", "localhost:99999", "unix:", "h:-1"])
def test_addresses_without_sense(address):
    with pytest.raises(UserError, match=f"--server_address={address} is not an address: use host"):
        RunConfig(server_address=address)


@pytest.mark.parametrize("address", ["localhost:0", "[::]:8686", "unix:/x", "dns:///host:80"])
def test_addresses(address):
    assert RunConfig(server_address=address).server_address == address
