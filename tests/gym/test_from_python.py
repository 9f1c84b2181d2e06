"""What `seed_rl.train` makes of environments that no other process can import."""

import ast
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from seed_rl.common.errors import UserError
from seed_rl.gym import env, from_python

PROGRAM = """
import collections, functools, random, threading
import gymnasium, numpy as np
from seed_rl.gym import from_python

class Maze(gymnasium.Env):
    lock = threading.Lock()
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    def __init__(self, size=3, names=frozenset(("a", "b", "c"))):
        super().__init__()
        self.size, self.random = size, np.random.default_rng()
        self.others = np.random.RandomState(), random.Random()
        self.np_random  # Its seed is chosen by the system.
    @property
    def area(self):
        return self.size ** 2
    @classmethod
    def make(cls, size=3):
        return cls(size, {"d", "e"})

def make(goal):
    return Maze(goal)

def factory(goal):
    return lambda: [Maze(each) for each in (goal, size)]

class Scale(gymnasium.RewardWrapper):
    def __init__(self, env, factor):
        super().__init__(env)
        self.factor = factor
    def reward(self, reward):
        return self.factor * reward

def unfinished():
    return lambda: later
    later = 1

def captured(*values):
    return [lambda value=value: Maze(value) for value in values]

size = 4
made = (
    Maze, Maze.make, lambda: make(3), factory(4), factory(5), functools.partial(make, 3),
    functools.partial(make, goal=3), lambda: make(4), Maze(), Maze(5),
    gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1", max_episode_steps=9),
    *(Scale(gymnasium.make("CartPole-v1"), factor) for factor in (1, 2)), unfinished(),
    *captured(collections.deque([1]), collections.deque([2])),
    *captured(collections.defaultdict(int), collections.defaultdict(list)),
    *captured(functools.lru_cache(lambda: 1), functools.lru_cache(lambda: 2), bytes(99)),
)
print([from_python.unique_label(each) for each in made])
"""


def labels(path, program=PROGRAM):
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


def test_labels_differ_for_other_environments_and_are_the_same_next_time(tmp_path):
    """Guards runs of two environments from sharing a directory, and the next call from beginning
    anew, also after code above was edited, and in another process.
    """
    first = labels(tmp_path / "one.py")
    assert len(set(first)) == len(first)
    names = ["Maze", "make", "lambda", "lambda", "lambda", "make", "make", "lambda", "Maze", "Maze"]
    names += ["CartPole-v1"] * 4 + ["lambda"] * 8
    assert [name.rpartition("-")[0] for name in first] == names
    assert labels(tmp_path / "two.py", "# One more line.\n" + PROGRAM) == first
    for before, after, others in (
        ("size = 4", "size = 5", [3, 4]),
        ("self.size ** 2", "self.size ** 3", [*range(10), *range(15, 22)]),
        ("return Maze(goal)", "return Maze(goal + 1)", [2, 5, 6, 7]),
    ):
        then = labels(tmp_path / "one.py", PROGRAM.replace(before, after))
        assert [i for i in range(len(first)) if then[i] != first[i]] == others


def test_a_function_with_num_envs_makes_vector_environments(monkeypatch):
    """As one that another process can import does."""
    made = lambda num_envs: gymnasium.make_vec("CartPole-v1", num_envs)  # noqa: E731
    with from_python.pickled(made) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        batch = env.create_batch(np.arange(3), env.GymConfig(env_name=from_python.NAME))
    assert batch is not None and batch.reset(seed=1).shape == (3, 4)
    # The program that trained has ended, and its file is gone.
    with pytest.raises(UserError, match="cannot be created in another process"):
        from_python.factory()
