"""Where most runs of the system tests take place."""

import pytest

from tests.helpers.system_helpers import site


@pytest.fixture
def place(tmp_path):
    """Its programs choose their addresses themselves."""
    with site(tmp_path, "") as place:
        yield place
