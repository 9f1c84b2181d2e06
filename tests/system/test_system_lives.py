"""No unroll mixes two lives, whatever happens to actors: real actors, server and inference store.

This process is the learner's side: the native server and central inference, with an algorithm
whose actions and states can be foretold, and a thread that takes unrolls. The actors' observations
carry life (process), episode, step and the action that led there, so that a step which does not
follow from the one before, an action of another one or a state of another environment shows.
"""

from __future__ import annotations

import collections
import json
import random
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.errors import ExitCode
from seed_rl.common.inference import env_specs
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.types import EnvOutput, Unroll
from seed_rl.testing import envs
from tests.helpers.system_helpers import FAULTY, LIFE_STEP, site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

ACTORS, ENVS_PER_ACTOR, UNROLL_LENGTH, EPISODE_LENGTH = 4, 2, 5, 10
NUM_ACTIONS = 1000  # So many that an action of another step is hardly ever the same.
TROUBLED = ACTORS  # The task of an actor that has trouble.
NUM_ENVS = (ACTORS + 1) * ENVS_PER_ACTOR


class StepCounter(tf.Module):
    """An agent whose state counts the steps of the episode."""

    def initial_state(self, batch_size):
        return tf.zeros([batch_size], tf.int32)


class RandomActions(Algorithm):
    """Chooses random actions; the faulty actor has only two of them."""

    def __init__(self):
        self.network = self.make_network()

    def make_network(self):
        return StepCounter()

    def act(self, agent, env_ids, prev_actions, env_outputs, agent_state):
        count = tf.where(env_outputs.done, 0, agent_state)
        action = tf.random.uniform(tf.shape(env_ids), 0, NUM_ACTIONS, tf.int64)
        action = tf.where(env_ids // ENVS_PER_ACTOR == TROUBLED, action % 2, action)
        return Acted(action, {"count": count, "env_id": env_ids}, count + 1)

    def evaluate(self, prev_actions, env_outputs, agent_state):
        raise NotImplementedError

    def loss(self, batch):
        return StepResult(tf.constant(0.0), {})


class Side:
    """The learner's side: serves, and checks every unroll as it arrives."""

    def __init__(self, address):
        env = envs.LifeStepEnv(num_actions=NUM_ACTIONS)
        specs = env_specs.specs(env.observation_space, env.action_space)
        algorithm = RandomActions()
        self.inference = CentralInference(
            algorithm,
            specs,
            [("/cpu:0", algorithm.network)],
            num_envs=NUM_ENVS,
            unroll_length=UNROLL_LENGTH,
            queue_capacity=16,
        )
        self.server = grpc.Server([address], grpc.ServerOptions(max_batch_size=NUM_ENVS))
        self.server.bind(self.inference.functions, isolate_errors=True)
        self.server.start()
        self.unrolls = collections.Counter()  # By environment.
        self.lives = collections.defaultdict(set)  # By environment.
        self.joined = 0
        self.faults = []
        self._last = {}
        self._dequeue = tf.function(lambda: self.inference.store.dequeue(1), autograph=False)
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def close(self):
        self.inference.store.close()
        self.server.shutdown()
        self._thread.join()

    def of(self, task):
        """Unrolls so far of an actor's first environment."""
        return self.unrolls[task * ENVS_PER_ACTOR]

    def goes_on(self, *tasks, unrolls=20):
        """Waits until each of these actors has produced this many more unrolls."""
        goals = {task: self.of(task) + unrolls for task in tasks}
        wait_until(lambda: self.faults or all(self.of(task) >= goals[task] for task in tasks))
        assert not self.faults

    def _take(self):
        while True:
            try:
                unrolls = tf.nest.map_structure(lambda t: t.numpy(), self._dequeue())
            except tf.errors.OutOfRangeError:
                return
            env_id = int(unrolls.env_ids[0])
            steps = tf.nest.map_structure(lambda t: t[:, 0], unrolls.steps)
            unroll = Unroll(unrolls.agent_state[0], *steps)
            self.faults += check(unroll, env_id, self._last.get(env_id))
            last = unroll.env_outputs.observation[-1]
            before = self._last.get(env_id)
            self.joined += before is not None and np.array_equal(
                before, unroll.env_outputs.observation[0]
            )
            self._last[env_id] = last
            self.unrolls[env_id] += 1
            self.lives[env_id].add(int(last[0]))


def check(unroll, env_id, last_of_previous):
    """What is wrong with an unroll, as a list of messages."""
    observation = unroll.env_outputs.observation
    done, reward = unroll.env_outputs.done, unroll.env_outputs.reward
    life, episode, step, action = observation.astype(np.int64).T
    faults = []

    def expect(truth, what):
        if not np.all(truth):
            faults.append(f"environment {env_id}: {what}\n{observation}\n{done}")

    expect(len(step) == UNROLL_LENGTH + 1, "length")
    expect(life == life[0], "two lives")
    expect(unroll.agent_outputs["env_id"] == env_id, "two environments")
    new = done[1:]
    expect(np.where(new, episode[1:] == episode[:-1] + 1, episode[1:] == episode[:-1]), "episode")
    expect(np.where(new, step[1:] == 0, step[1:] == step[:-1] + 1), "a step is missing")
    expect(np.where(new, step[:-1] == EPISODE_LENGTH - 1, True), "done too early")
    expect(np.where(done, reward == EPISODE_LENGTH, reward == step), "another step's reward")
    begins = step == 0
    expect(np.where(begins, True, unroll.prev_actions == action), "another step's action")
    expect(unroll.agent_outputs["count"] == step, "another step's recurrent state")
    expect(done[0] or unroll.agent_state == step[0], "the state is not that before the unroll")
    expect(unroll.env_outputs.episode_step == step, "episode_step")
    # Unrolls of a life overlap by one step; a new life begins with an episode.
    if last_of_previous is not None and not np.array_equal(last_of_previous, observation[0]):
        expect(step[0] == 0 and not done[0], "neither the next unroll nor a new life")
    return faults


@pytest.fixture(scope="module")
def place(tmp_path_factory, shared_address):
    with site(
        tmp_path_factory.mktemp("lives"),
        shared_address,
        LIFE_STEP,
        f'--env_kwargs={{"num_actions": {NUM_ACTIONS}}}',
        f"--env_batch_size={ENVS_PER_ACTOR}",
        f"--num_envs={NUM_ENVS}",
    ) as place:
        yield place


@pytest.fixture(scope="module")
def side(place):
    side = Side(place.address)
    yield side
    side.close()


@pytest.fixture(scope="module")
def actors(place, side):
    """The well-behaved actors by task; tests leave all of them running."""
    actors = {task: place.actor(task) for task in range(ACTORS)}
    side.goes_on(*actors)
    return actors


def test_check_finds_faults():
    """Guards the check itself: each kind of mixing must show."""
    n = UNROLL_LENGTH + 1
    step = np.arange(n)

    def unroll():
        observation = np.stack([np.full(n, 7), np.zeros(n), step, np.full(n, 3)], 1)
        zeros = np.zeros(n)
        done = zeros.astype(bool)
        outputs = EnvOutput(step.copy(), done, observation, done.copy(), step.copy())
        recorded = {"count": step.copy(), "env_id": zeros.copy()}
        return Unroll(np.int32(0), np.full(n, 3), outputs, recorded)

    assert check(unroll(), 0, None) == []
    for spoil in (
        lambda u: u.env_outputs.observation[3:, 0].fill(8),
        lambda u: u.env_outputs.observation[2:, 2].__iadd__(1),
        lambda u: u.prev_actions[2:].fill(4),
        lambda u: u.agent_outputs["count"][4:].fill(0),
        lambda u: u.agent_outputs["env_id"][4:].fill(1),
        lambda u: u.env_outputs.reward[1:].fill(0),
    ):
        spoiled = unroll()
        spoil(spoiled)
        assert check(spoiled, 0, None)


def test_kill_9_of_half_of_the_actors_again_and_again(place, side, actors):
    """The others continue while they are dead; new ones begin new lives; no unroll mixes lives."""
    lot = random.Random(1)
    for _ in range(6):
        killed = lot.sample(sorted(actors), ACTORS // 2)
        for task in killed:
            actors[task].kill()
        rest = [task for task in actors if task not in killed]
        side.goes_on(*rest)
        for task in killed:
            actors[task] = place.actor(task)
        # Some are killed in their very first steps.
        side.goes_on(*killed, unrolls=lot.choice([1, 1, 20]))
    side.goes_on(*actors)
    assert sum(map(len, side.lives.values())) >= (ACTORS + 6 * ACTORS // 2) * ENVS_PER_ACTOR
    assert side.joined > 0, "the check of consecutive unrolls never ran"
    assert side.faults == []


def test_a_frozen_actor_stalls_nobody_and_is_taken_back(side, actors):
    """SIGSTOP holds up no other actor; after SIGCONT it continues in the same life."""
    lives = set(side.lives[0])
    actors[0].send(signal.SIGSTOP)
    side.goes_on(1, 2, 3, unrolls=50)
    actors[0].send(signal.SIGCONT)
    side.goes_on(0)
    assert side.lives[0] == lives
    assert actors[0].code is None
    assert side.faults == []


def test_a_frozen_actor_that_was_replaced_is_told_so(place, side, actors):
    """Two actors of one task: the newer one has the environments, the older ends with one line."""
    frozen = actors[0]
    frozen.send(signal.SIGSTOP)
    actors[0] = place.actor(0)
    side.goes_on(0)
    frozen.send(signal.SIGCONT)
    assert frozen.wait() == ExitCode.SUPERSEDED
    assert len(frozen.errors()) == 1 and "give each its own" in frozen.errors()[0]
    assert "Traceback" not in frozen.text()
    side.goes_on(*actors)
    assert side.faults == []


@pytest.mark.parametrize(
    "fault, code, message",
    [
        ("raise", 1, "raised in step()."),
        ("exit", 77, None),
        (
            "sys_exit",
            1,  # Not its 0, which would pass for an actor that was stopped.
            f"Environment {TROUBLED * ENVS_PER_ACTOR} called sys.exit() in step(). SystemExit(0)",
        ),
    ],
)
def test_an_actor_in_trouble_tells_why_and_harms_nobody(place, side, actors, fault, code, message):
    """One clear line and the right exit code for the actor; nothing at all for the others."""
    options = json.dumps({"fault": fault, "at": 30})
    troubled = place.actor(TROUBLED, FAULTY, f"--env_kwargs={options}")
    assert troubled.wait() == code, troubled.text()
    assert len(troubled.errors()) == (message is not None), troubled.text()
    assert message is None or message in troubled.errors()[0]
    # The log has the environment's own traceback.
    assert ("Traceback" in troubled.text()) == (code == ExitCode.ENVIRONMENT_FAILED)
    side.goes_on(*actors)
    assert all(actor.code is None for actor in actors.values())
    assert side.faults == []


def test_an_environment_that_hangs_stalls_only_its_actor(place, side, actors):
    hanging = place.actor(TROUBLED, FAULTY, '--env_kwargs={"fault": "hang", "at": 30}')
    wait_until(lambda: "hanging" in hanging.text(), running=hanging)
    side.goes_on(*actors, unrolls=50)
    hanging.send(signal.SIGTERM)
    assert hanging.wait() == 0
    assert side.faults == []


def test_the_server_restarts_under_its_actors(place, side, actors):
    """All reconnect in new lives; unrolls in progress are dropped."""
    lives_before = side.inference.store.counters().lives
    side.server.shutdown()
    side.server = grpc.Server([place.address], grpc.ServerOptions())
    side.server.bind(side.inference.functions, isolate_errors=True)
    side.server.start()
    side.goes_on(*actors)
    lives = side.inference.store.counters().lives
    assert lives - lives_before == ACTORS * ENVS_PER_ACTOR
    assert all(actor.code is None for actor in actors.values())
    assert side.faults == []
