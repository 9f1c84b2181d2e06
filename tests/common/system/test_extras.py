"""Messages for packages that are missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from packaging.requirements import Requirement

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots
from seed_rl.common.system.extras import PACKAGES, missing_extra
from seed_rl.gym.env import GymConfig, create_environment

PIP = re.escape(f"{sys.executable} -m pip install")


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_packages_are_those_of_the_extra(extra: str, repository: Path) -> None:
    """Guards the second list of packages from falling behind pyproject.toml."""
    text = (repository / "pyproject.toml").read_text()
    declared = re.search(rf"^{extra} = \[(.*)\]$", text, re.MULTILINE)
    assert declared is not None
    names = [Requirement(quoted).name for quoted in re.findall(r'"([^"]*)"', declared[1])]
    assert list(PACKAGES[extra]) == names


def test_no_index_is_asked_for_this_package() -> None:
    """Guards users from `pip install 'seed_rl[video]'`: nothing is published under that name."""
    message = str(missing_extra("video", "Writing a video", ImportError("No module named 'x'")))
    assert re.search(rf"\(No module named 'x'\).*: {PIP} imageio imageio-ffmpeg$", message)


def test_no_page_asks_an_index_for_this_package(repository: Path) -> None:
    """Guards the same in all messages and pages."""
    files = [*repository.glob("*.md"), *repository.glob("docs/**/*.md")]
    files += [*repository.glob("seed_rl/**/*.py"), *repository.glob("scripts/*.sh")]
    assert len(files) > 100
    asking = re.compile(r"pip install (-\S+ )*'?seed[-_]rl\b")
    assert [file for file in files if asking.search(file.read_text())] == []


def test_missing_matplotlib_names_the_command(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=f"{PIP} matplotlib"):
        plots.draw([plots.Panel("", "frames", [])], str(tmp_path / "x.png"))


def test_gymnasium_s_own_packages(monkeypatch: Any) -> None:
    """Gymnasium names its packages; `pip` alone may be another interpreter's."""
    for name in ("mujoco", "pygame"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=rf"HalfCheetah-v5: .*{PIP} .*gymnasium\[mujoco\]"):
        create_environment(0, GymConfig("HalfCheetah-v5"))

    def draws(task: int, config: Any) -> gymnasium.Env[Any, Any]:
        class Drawn(gymnasium.Wrapper[Any, Any, Any, Any]):
            def reset(self, **kwargs: Any) -> Any:
                result = super().reset(**kwargs)
                self.render()
                return result

        return Drawn(create_environment(task, config))

    env = BatchedEnvironment(draws, 1, 0, GymConfig(render_mode="rgb_array"))
    with pytest.raises(UserError, match=rf"{PIP} .*gymnasium\[classic-control\]"):
        env.reset()
