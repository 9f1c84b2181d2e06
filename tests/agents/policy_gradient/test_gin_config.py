"""Gin configs with mistakes: what people are told."""

import gin
import pytest

from seed_rl.agents.policy_gradient import gin_config
from seed_rl.common.errors import UserError


@pytest.fixture(autouse=True)
def unconfigured():
    yield
    gin.clear_config()


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("GAE.lamda_ = 1", "Did you mean GAE.lambda_?"),
        ("GAE.lambda_ = [1,", "EOF in multi-line statement"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("include 'no_such_file.gin'", "no_such_file.gin"),
    ],
)
def test_mistakes_are_user_errors(binding, message):
    """Guards against tracebacks of gin, of Python's tokenizer and of imports."""
    with pytest.raises(UserError, match="^Gin config: ") as raised:
        gin_config.load([], [binding])
    assert message in str(raised.value)
