"""Programs that are a learner or an actor, as users start them."""

import os

import pytest

from seed_rl.dmlab import vtrace_main as dmlab
from seed_rl.football import vtrace_main as football
from seed_rl.gym import agents
from tests.helpers import PROGRAMS, run_python

EXISTING = PROGRAMS / "existing_main.py"


@pytest.mark.parametrize("module", ["seed_rl.gym.vtrace_main", "seed_rl.atari.r2d2_main"])
def test_a_program_without_a_run_mode_says_so(module, tmp_path):
    """Guards that nothing becomes a learner by default: one line, exit code 2, no file written."""
    result = run_python("-m", module, f"--logdir={tmp_path}/run", code=2)
    assert result.stderr.startswith("error: --run_mode is missing")
    assert "--run_mode=learner" in result.stderr and "--run_mode=actor" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_existing_program_without_a_run_mode_ends_likewise(forks, tmp_path):
    """Its own "Unsupported run mode None" would come with a traceback."""
    result = forks.run(EXISTING, f"--logdir={tmp_path}/run", code=2)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and "--run_mode is missing" in last
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_action_repeats_that_no_environment_obeys_are_refused():
    """They would only miscount frames. A program that declares them as its default may."""
    program = """
import dataclasses, sys
from seed_rl.agents.vtrace import program
from seed_rl.common.acting import environment_family

@dataclasses.dataclass(frozen=True)
class Config:
    \"\"\"Own: options.\"\"\"

family = environment_family.EnvironmentFamily(Config, None)
program.main(family, **eval(sys.argv.pop(1)))
"""
    flags = "--run_mode=learner", "--num_action_repeats=4", "--only_check_args"
    result = run_python("-c", program, "{}", *flags, code=2)
    assert result.stderr.startswith("error: --num_action_repeats would have no effect: Config has")
    run_python("-c", program, "{'num_action_repeats': 4}", *flags, code=0)


def test_learners_of_image_environments_use_onednn(tmp_path):
    """Guards half of their speed on processors for which TensorFlow leaves oneDNN unused.

    The variable must be set before TensorFlow is imported; a user's value stays.
    """
    program = """
import importlib, os, sys
from seed_rl.common.acting.program import AgentProgram

def create_job():
    print("tensorflow" in sys.modules, os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
    sys.exit(0)

family = importlib.import_module(sys.argv.pop(1)).FAMILY
AgentProgram("own", create_job, (), print, ()).main(family)
"""

    def learner(family, **variables):
        env = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"} | variables
        flags = "--run_mode=learner", "--num_envs=1", f"--logdir={tmp_path}"
        return run_python(
            "-c", program, f"seed_rl.{family}", *flags, code=0, env=env
        ).stdout.split()

    assert learner("atari.environment") == ["False", "1"]
    assert learner("gym.env") == ["False", "None"]
    assert learner("atari.environment", TF_ENABLE_ONEDNN_OPTS="0") == ["False", "0"]
    assert dmlab.FAMILY.images and football.FAMILY.images


def test_any_option_can_be_a_default_of_a_program():
    """Guards names that the main program's own parameters might take."""
    program = "from seed_rl.agents.vtrace import program; from seed_rl.gym.env import FAMILY; "
    program += "program.main(FAMILY, optimizer='rmsprop')"
    result = run_python("-c", program, "--help", code=0)
    assert "(default: 'rmsprop')" in result.stdout


@pytest.mark.parametrize("agent", agents.AGENTS)
def test_a_network_of_a_program_has_no_flags_of_the_agents_own(agent):
    """They would be accepted and change nothing. What presets say of them is left out."""
    program = "from seed_rl.gym import agents, env; "
    program += f"agents.run('{agent}', env.FAMILY, create_agent=lambda *spaces: None)"
    main = ("-c", program, "--run_mode=learner", "--num_envs=4", "--only_check_args")
    run_python(*main, code=0)
    result = run_python(*main, "--mlp_sizes=3", code=2)
    assert "Unknown command line flag 'mlp_sizes'" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "flags", "message"),
    [
        ("sac", ["--dropped_quantiles_per_critic=3"], "there are none to drop"),
        ("r2d2", ["--n_steps=100"], "--unroll_length=20 is shorter than"),
        (
            "ppo",
            ["--step_size_transitions=2048", "--unroll_length=16"],
            "contradicts --step_size_transitions=2048, which makes it 512",
        ),
        ("ppo", ["--action_std_for_zero_param=0"], "must be above --action_min_gaussian_std"),
        ("vtrace", ["--asymmetric_rewards", "--reward_shaping=soft_asymmetric"], "contradicts"),
        ("pqn", ["--batch_size=2", "--batch_size_transitions=64"], "set one or the other"),
        ("ppo", ["--vf_coef=0.5"], "write --baseline_cost=..., the weight of the squared error"),
        (
            "ppo",
            ["--clip_range=0.5", "--gin_bindings=ppo.epsilon = 0.25"],
            "set the same thing differently",
        ),
    ],
)
def test_mistakes_are_found_before_anything_starts(forks, agent, flags, message):
    """By what ./run_local.sh and the dry runs of clusters ask first."""
    main = ("-m", f"seed_rl.gym.{agent}_main", "--run_mode=learner", "--num_envs=4")
    result = forks.run(*main, *flags, "--only_check_args", code=2)
    assert message in result.stderr.splitlines()[-1]


def test_a_replay_that_fills_for_most_of_the_run_is_noted():
    """Guards short runs that would train on little, with nothing to see but a flat curve."""
    main = ("-m", "seed_rl.gym.r2d2_main", "--run_mode=learner", "--only_check_args")
    note = run_python(*main, "--total_environment_frames=5000").stderr
    assert note.startswith("note: Training begins late")
    assert "--replay_buffer_min_size=200 unrolls of 20 frames = 4,000 frames" in note
