"""Flags of networks in the real programs: each has an effect, or is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Makes the network as the learner does, with the flags of the command line, and describes it.
PROGRAM = """
import runpy, sys
from gymnasium import spaces
import numpy as np
from seed_rl.common.inference import env_specs
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.errors import UserError

module, space = sys.argv[1], eval(sys.argv[2])

class Env:
    observation_space, action_space = space, spaces.Discrete(2)
    def reset(self, **kwargs): return space.sample(), {}
    def step(self, action): return space.sample(), 0.0, False, False, {}
    def close(self): pass

def show(job):
    from seed_rl.common.inference.inference import initialize
    initialize(job.algorithm, job.algorithm.network, job.specs)
    state = job.algorithm.network.initial_state(1).core_state
    print([int(layer[0].shape[-1]) for layer in state])

from seed_rl.gym import env
env.create_environment = lambda task, config: Env()
sys.argv = [module, "--run_mode=learner", *sys.argv[3:]]
TrainingJob.train = show
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
VECTOR = "spaces.Box(-1, 1, (3,), np.float32)"
IMAGE = "spaces.Box(0, 255, (40, 40, 1), np.uint8)"
BOTH = f"spaces.Dict(image={IMAGE}, rest={VECTOR})"
VTRACE, R2D2 = "seed_rl.gym.vtrace_main", "seed_rl.gym.r2d2_main"


def run(module, space, *flags):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, module, space, *flags],
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "flags", "layers"),
    [
        (VECTOR, ["--lstm_size=6"], [6]),
        (VECTOR, ["--lstm_sizes=6,5", "--mlp_sizes=4"], [6, 5]),
        (IMAGE, ["--lstm_sizes=6,5", "--torso=impala_shallow"], [6, 5]),
        (IMAGE, ["--lstm_size=0", "--stack_size=2"], []),
        (BOTH, ["--lstm_size=6", "--mlp_sizes=4", "--torso=impala_shallow"], [6]),
    ],
)
def test_one_flag_makes_the_lstm_of_any_network(space, flags, layers):
    """Guards either spelling of the flag, for images, vectors and nests of both."""
    result = run(VTRACE, space, *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == str(layers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "space", "flags", "message"),
    [
        (VTRACE, IMAGE, ["--mlp_sizes=32"], "--mlp_sizes would have no effect: observations are"),
        (VTRACE, IMAGE, ["--mlp_activation=relu"], "--mlp_activation would have no effect"),
        (VTRACE, VECTOR, ["--torso=impala_deep"], "--torso would have no effect"),
        (R2D2, IMAGE, ["--mlp_sizes=32"], "--mlp_sizes would have no effect"),
        (R2D2, VECTOR, ["--stack_size=4", "--torso=impala_deep"], "--torso and --stack_size would"),
    ],
)
def test_flags_of_other_networks_are_refused(module, space, flags, message):
    result = run(module, space, *flags)
    assert result.returncode == 2, result.stderr
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert message in error and "Box(" in error


@pytest.mark.parametrize("flag", ["--lstm_size=-1", "--mlp_sizes=0", "--mlp_sizes=64,-3"])
def test_impossible_sizes_are_refused(flag):
    result = run(VTRACE, VECTOR, flag)
    assert result.returncode == 2, result.stderr
    assert flag.partition("=")[0].strip("-")[:9] in result.stderr.splitlines()[-1]
