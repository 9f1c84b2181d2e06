"""Tokens: which can be sent, and the files that hold them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.system import tokens


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("", "is empty"),
        ("a\nb", r"has '\\n' as character 2"),
        ("a\n", r"has '\\n' as character 2"),
        ("\t", r"has '\\t' as character 1"),
        ("gehe\u00efm", r"has '\\xef' as character 5"),
        ("a\0b", r"has '\\x00' as character 2"),
        (" a", "starts or ends with a space"),
        ("a" * 5000, "has 5000 characters, more than 4096"),
    ],
)
def test_tokens_that_cannot_be_sent(token: str, problem: str) -> None:
    """Guards programs from gRPC, which ends the process on some, and servers from an empty one."""
    with pytest.raises(UserError, match=f"^The token {problem}: a token has") as caught:
        tokens.check(token)
    assert len(str(caught.value)) < 200  # It does not show the secret.


@pytest.mark.parametrize("token", ["x", "correct horse battery staple", "!~\"'\\", "a" * 4096])
def test_tokens(token: str) -> None:
    assert tokens.check(token) == token


def secret_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n", "s3cret\n\n"])
def test_line_breaks_after_the_token_in_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """Guards files written by `echo`; a file of the owner's alone causes no warning."""
    assert RunConfig(auth_token_file=secret_file(tmp_path, text)).auth_token() == "s3cret"
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("one\ntwo\n", r"has '\\n'"),
        ("schl\u00fcssel", r"'\\xfc'"),
    ],
)
def test_files_without_a_token(tmp_path: Path, text: str, problem: str) -> None:
    path = secret_file(tmp_path, text)
    with pytest.raises(UserError, match=f"The token in --auth_token_file={path} .*{problem}"):
        RunConfig(auth_token_file=path).auth_token()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_one_warning_if_others_can_read_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """Once, though learner and actors read it again and again; with the command that fixes it."""
    path = secret_file(tmp_path, "s3cret", mode)
    for _ in range(3):
        assert tokens.read(path, "--auth_token_file") == "s3cret"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"chmod 600 {path}" in record.getMessage()
    assert "s3cret" not in caplog.text
    os.chmod(path, 0o600)
