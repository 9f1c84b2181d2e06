"""A run on five machines, which are namespaces with their own addresses; each in turn has trouble.

docs/reliability.md says what a user sees of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.network import Network, network, unavailable
from tests.helpers.secrets import Secrets, make_secrets
from tests.helpers.system_helpers import Program, Site, site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

PORT = 8686
ACTORS = ("actor0", "actor1", "actor2")
JOINED = f"learner at learner:{PORT}."  # An actor's log, once per life.


class Cluster:
    """The hosts, the secrets, and the processes of the run."""

    def __init__(self, hosts: Network, secrets: Secrets, place: Site):
        self.hosts = hosts
        self.place = place
        self._secrets = secrets
        self._learner_host = ""
        self.learner: Program

    def start_learner(self, host: str) -> None:
        """Starts it there, under the name by which the actors know it."""
        self.hosts.name("learner", self.hosts.address(host))
        self._learner_host = host
        self.learner = self._start(
            host,
            *("--run_mode=learner", f"--logdir={self.place.logdir}", "--save_checkpoint_secs=5"),
            *(f"--server_address=0.0.0.0:{PORT}", "--insecure", f"--num_envs={len(ACTORS)}"),
            *self._secrets.of_learner,
        )

    def lose_learner(self) -> None:
        """Its machine vanishes: no peer is notified that its connections are closed."""
        self.hosts.cut(self._learner_host)
        self.learner.kill()

    def start_actor(self, task: int) -> Program:
        address = f"--server_address=learner:{PORT}"
        arguments = ("--run_mode=actor", f"--task={task}", address, *self._secrets.of_actor)
        return self._start(ACTORS[task], *arguments)

    def silent(self) -> set[int]:
        """The silent environments in progress.json; actor i has environment i."""
        progress = self.place.progress(self.learner)
        assert progress is not None
        return {int(env) for env, _ in progress.silent_envs}

    def trains_on(self) -> None:
        self.place.trains_on(self.learner, 200)

    def _start(self, host: str, *arguments: str) -> Program:
        within = self.hosts.within(host)
        return self.place.start("seed_rl.gym.vtrace_main", *arguments, within=within)


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    if reason := unavailable():
        pytest.skip(reason)
    secrets = make_secrets(tmp_path / "secrets", "learner")
    with (
        network(tmp_path, "first", "second", *ACTORS) as hosts,
        site(tmp_path, "") as place,
    ):
        yield Cluster(hosts, secrets, place)


def start_all(cluster: Cluster) -> list[Program]:
    """Starts learner and actors, which all connect."""
    cluster.start_learner("first")
    actors = [cluster.start_actor(task) for task in range(len(ACTORS))]
    wait_until(lambda: all(JOINED in actor.text() for actor in actors), running=cluster.learner)
    cluster.trains_on()
    return actors


@pytest.mark.nightly
def test_actors_in_trouble(cluster: Cluster) -> None:
    """Cuts one actor's host off, slows one down and kills one; no other actor notices."""
    hosts = cluster.hosts
    actors = start_all(cluster)
    hosts.cut(ACTORS[0])
    hosts.slow_down(ACTORS[1])
    actors[2].kill()
    actors[2] = cluster.start_actor(2)
    wait_until(lambda: JOINED in actors[2].text(), running=actors[2])
    wait_until(lambda: cluster.silent() == {0}, running=cluster.learner)  # Only the one cut off.
    cluster.trains_on()
    assert hosts.held_back(ACTORS[1]) > 0
    hosts.join(ACTORS[0])
    wait_until(lambda: cluster.silent() == set(), running=cluster.learner)
    cluster.trains_on()
    progress = cluster.place.progress(cluster.learner)
    assert progress is not None and progress.warning is None
    assert [actor.code for actor in actors] == [None] * 3


def test_the_learner_moves(cluster: Cluster) -> None:
    """Its machine vanishes; another one takes its name, and the actors find it there."""
    actors = start_all(cluster)
    wait_until(lambda: any(cluster.place.logdir.glob("checkpoints/ckpt-*")))
    cluster.lose_learner()
    cluster.start_learner("second")
    cluster.trains_on()
    assert "Resuming after" in cluster.learner.text()
    wait_until(lambda: all(actor.text().count(JOINED) == 2 for actor in actors))
    wait_until(lambda: cluster.silent() == set(), running=cluster.learner)
    assert [actor.code for actor in actors] == [None] * 3
