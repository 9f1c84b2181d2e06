"""docker/compose.yaml, as the Compose specification's own model reads it."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml

from tests import helpers

compose_spec = pytest.importorskip("compose_spec", reason="scripts/setup.sh dev installs it")


def document(path: pathlib.Path) -> dict:
    """The file with its variables' defaults, as without any setting."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text())
    text = re.sub(r"\$\{\w+:\+[^}]*\}", "", text)
    assert "${" not in text
    # The model does not know that a number of restarts may follow.
    return yaml.safe_load(re.sub(r"(restart: on-failure):\d+", r"\1", text))


def check(compose: dict) -> None:
    """Raises ValueError if anything is unknown or inconsistent."""
    compose_spec.PyCompose.from_json(json.dumps(compose)).validate()
    services = compose["services"]
    for service in services.values():
        for volume in service.get("volumes", []):
            if volume["type"] == "volume" and volume["source"] not in compose["volumes"]:
                raise ValueError(f"unknown volume {volume['source']}")
        for other in service.get("depends_on", []):
            if other not in services:
                raise ValueError(f"unknown service {other}")


@pytest.fixture(scope="module")
def compose(repository) -> dict:
    return document(repository / "docker" / "compose.yaml")


def test_valid(repository, compose):
    check(compose)
    check(document(repository / "docker" / "compose.gpu.yaml"))


def test_processes_meet(compose):
    """All run the same command; actors find the proxy by the learner's name and share indices."""
    services = compose["services"]
    assert len({service["command"] for service in services.values()}) == 1
    assert {s["environment"]["SEED_RL_ROLE"] for s in services.values()} == set(services)
    for role in ("learner", "actor", "proxy"):
        assert services[role]["environment"]["SEED_RL_SECRETS"] == "/run/secrets"
    for role in ("actor", "proxy"):
        assert services[role]["environment"]["SEED_RL_ADDRESS"] == "learner:8686"
        assert set(services[role]["networks"]) == {"actors"}
    assert services["proxy"]["networks"]["actors"]["aliases"] == ["learner"]
    paths = {services[role]["environment"]["SEED_RL_PROXY"] for role in ("learner", "proxy")}
    assert paths == {"/proxy/learner.sock"} and "actors" not in services["learner"]["networks"]
    assert "proxy.pem" not in services["actor"]["secrets"]
    assert services["actor"]["environment"]["SEED_RL_INDEX_DIR"] == "/index"
    assert [v["target"] for v in services["actor"]["volumes"]] == ["/index"]


def test_nothing_is_restarted_for_ever(repository):
    """A learner with wrong options fails each time."""
    text = (repository / "docker" / "compose.yaml").read_text()
    policies = re.findall(r"restart: (.*)", text)
    assert len(policies) == 4
    assert set(policies) == {"on-failure:10"}


@pytest.mark.parametrize("registry", ["", "host/path"])
def test_the_images_are_those_that_are_pushed(repository, registry):
    """A shell reads Compose's variables alike."""
    text = (repository / "docker" / "compose.yaml").read_text()
    learner, actor = re.findall(r"image: .*?(\$\S+)", text)
    script = f"source docker/lib.sh; echo {learner} {actor}; learner_image atari; actor_image atari"
    settings = {"SEED_RL_REGISTRY": registry}
    done = helpers.run("bash", "-c", script, code=0, variables=settings, cwd=repository)
    names, pushed = done.stdout.split()[:2], done.stdout.split()[2:]
    assert names == pushed and names[0].startswith(registry)
