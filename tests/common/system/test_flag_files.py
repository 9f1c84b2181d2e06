"""Flag files are spelled out for machines that do not have them."""

from __future__ import annotations

import pathlib

from seed_rl.common.system import flag_files


def test_flags_stand_where_their_file_was_named(tmp_path: pathlib.Path, capsys) -> None:
    """In order, since later ones win; a file may be named twice."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"# Mine.\n--flagfile={second}\n\n  --seed=1\n")
    second.write_text("--seed=2")
    flags = ["--a", f"--flagfile={first}", "--b=x y", f"--flagfile={second}"]
    assert flag_files.main(flags) == 0
    assert capsys.readouterr().out == "--a\n--seed=2\n--seed=1\n--b=x y\n--seed=2\n"


def test_mistakes_are_one_message(tmp_path: pathlib.Path, capsys) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"--flagfile={second}\n")
    second.write_text(f"--flagfile={first}\n")
    assert flag_files.main([f"--flagfile={first}"]) == 2
    assert f"--flagfile={first}: the file includes itself" in capsys.readouterr().err
    second.write_bytes(b"\xff")
    assert flag_files.main([f"--flagfile={first}"]) == 2
    assert capsys.readouterr().err == f"error: --flagfile={second}: this is not a text file.\n"
    assert flag_files.main([f"--flagfile={tmp_path / 'none'}"]) == 2
    assert "No such file" in capsys.readouterr().err
