"""Football without an engine: the choice, and messages if it is missing or lacks an option."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from seed_rl.common.errors import UserError
from seed_rl.football import envpool_env, gfootball_env
from seed_rl.football.environment import (
    CHECKPOINTS,
    ENVPOOL,
    GFOOTBALL,
    FootballConfig,
    choose_engine,
    create_environment,
)
from seed_rl.launch import games


def install(monkeypatch: pytest.MonkeyPatch, *engines: str) -> None:
    """Makes only these engines look installed, and none of them importable."""
    monkeypatch.setattr(envpool_env, "is_installed", lambda: ENVPOOL in engines)
    monkeypatch.setattr(gfootball_env, "is_installed", lambda: GFOOTBALL in engines)
    for package in ("envpool", "gfootball", "gfootball.env"):
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("options", "installed", "engine"),
    [
        ({}, [ENVPOOL, GFOOTBALL], ENVPOOL),
        ({}, [GFOOTBALL], GFOOTBALL),
        ({}, [], ENVPOOL),  # The one that is easy to install.
        ({"reward_experiment": CHECKPOINTS}, [ENVPOOL], GFOOTBALL),
        ({"smm_size": "large"}, [ENVPOOL, GFOOTBALL], GFOOTBALL),
        ({"engine": GFOOTBALL}, [ENVPOOL], GFOOTBALL),
        ({"engine": ENVPOOL}, [GFOOTBALL], ENVPOOL),
    ],
)
def test_the_engine_follows_the_options_and_what_is_installed(
    options: dict[str, Any],
    installed: list[str],
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, *installed)
    assert choose_engine(FootballConfig(**options)) == engine


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"reward_experiment": CHECKPOINTS}, "--reward_experiment=scoring,checkpoints"),
        ({"smm_size": "medium"}, "--smm_size=medium"),
    ],
)
def test_envpool_refuses_what_it_cannot_do(options: dict[str, Any], flag: str) -> None:
    """Names the option, and the engine that supports it."""
    with pytest.raises(UserError, match=f"envpool does not support {flag}; .* gfootball") as raised:
        create_environment(0, FootballConfig(engine=ENVPOOL, **options))
    assert "scripts/build_gfootball.sh" in str(raised.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="EnvPool has football from Python 3.11 on")
def test_without_an_engine_pip_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards new users from a traceback of imports."""
    install(monkeypatch)
    with pytest.raises(UserError, match=r"Football needs packages .* pip install envpool$"):
        create_environment(0, FootballConfig())


@pytest.mark.parametrize(
    ("options", "purpose"),
    [
        ({"engine": GFOOTBALL}, "--engine=gfootball"),
        ({"reward_experiment": CHECKPOINTS}, "--reward_experiment=scoring,checkpoints"),
    ],
)
def test_without_gfootball_its_script_is_named(
    options: dict[str, Any], purpose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which option needs it."""
    install(monkeypatch, ENVPOOL)
    with pytest.raises(UserError, match=f"{purpose} needs .*scripts/build_gfootball.sh"):
        create_environment(0, FootballConfig(**options))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("academy_empty_gaol_close", "Did you mean academy_empty_goal_close"),
        ("11_VS_11_Easy", "Did you mean 11_vs_11_easy_stochastic"),
        ("zzz", "Choose from 11_vs_11_easy_stochastic, academy_empty_goal_close."),
    ],
)
def test_unknown_scenarios_name_the_nearest(
    name: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ("11_vs_11_easy_stochastic", "academy_empty_goal_close")
    monkeypatch.setattr(envpool_env, "scenarios", lambda: known)
    with pytest.raises(UserError, match=f"no scenario '{name}'. {answer}"):
        create_environment(0, FootballConfig(game=name, engine=ENVPOOL))


def test_run_local_finds_the_program_and_its_extra() -> None:
    assert games.main_module("football", "vtrace") == "seed_rl.football.vtrace_main"
    assert games.extra("football") == "football"
