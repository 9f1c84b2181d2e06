"""Several seeds by one command, and what a seed determines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import returns_log
from seed_rl.launch import arguments, local
from seed_rl.study import program, runner, seeds

FRAMES, FILE = 6000, "returns.csv"
LINE = ("gym", "vtrace", "1", "8", "--env_name=CartPole-v1", "--seeds=3", "--at_once=2")


@pytest.mark.slow
def test_a_command_line_becomes_a_study(tmp_path):
    """What is typed reaches every run; the length is the program's own; more seeds join later."""
    flags = ("--gin_bindings=GAE.lambda_ = 0.9", "--gin_bindings=ppo.epsilon = 0.1")
    flags = (*flags, "--unroll_length=16")
    line = ["gym", "ppo", *LINE[2:], f"--logdir={tmp_path}/study", *flags]
    study, at_once = seeds.open_study(line)
    assert at_once == 2 and study.path == tmp_path / "study"
    study.write()
    (configuration,) = [study.trials.ask()]
    first, *others = study.runs_of(configuration)
    assert [run.seed for run in others] == [2, 3]
    options = arguments.parse(runner.command(study, first))
    assert (options.actors, options.envs_per_actor, options.tensorboard) == (1, 8, False)
    own = ("--total_environment_frames=1000000", "--seed=1")
    assert set(options.flags) == {"--env_name=CartPole-v1", *own, *flags}
    more, _ = seeds.open_study([*line, "--seeds=4"])
    assert len(more.runs()) == 4
    del line[-3:-1]  # A program that has gin bindings to check imports TensorFlow.
    with pytest.raises(UserError, match="unroll_length was"):
        seeds.open_study([*line, "--unroll_length=32"])
    with pytest.raises(UserError, match="--save_model with its value"):
        seeds.open_study([*line, "--save_model"])


def test_what_is_typed_counts_more_than_a_flag_file(tmp_path):
    """Guards the length of runs, and seeds from being all that of the file."""
    (tmp_path / "some.flags").write_text("--total_environment_frames=5000\n--seed=7\n")
    line = [*LINE, f"--logdir={tmp_path}/study", f"--flagfile={tmp_path}/some.flags"]
    study, _ = seeds.open_study([*line, "--frames=3000"])
    assert study.spec.frames == 3000
    study.write()
    run = study.runs_of(study.trials.ask())[1]
    *_, frames, seed, logdir, _ = runner.command(study, run)
    assert (frames, seed) == ("--total_environment_frames=3000", "--seed=2")
    assert local.ask_program(arguments.parse(runner.command(study, run)), quiet=True).frames == 3000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds=0"], "--seeds must be a positive integer"),
        (["--seeds=2", "--seed=7"], "leave --seed out"),
        (["--seeds=2", "--restart=fresh"], "--restart cannot be combined with --seeds: name a new"),
        (["--at_once=2"], "--at_once is only for several runs"),
    ],
)
def test_what_seeds_exclude_is_said(flags, message):
    with pytest.raises(UserError, match=message):
        arguments.parse([*LINE[:5], *flags])


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(["ppo", "--jit=false"], id="ppo"),
        pytest.param(["ppo"], id="ppo-compiled", marks=pytest.mark.nightly),
        pytest.param(["pqn"], id="pqn", marks=pytest.mark.nightly),
        pytest.param(
            ["vtrace", "--block_inference_on_training=true"], id="vtrace", marks=pytest.mark.nightly
        ),
    ],
)
def test_same_seed_same_curve(tmp_path: Path, agent: list[str]) -> None:
    """With one actor and turns, seed 1 gives the same episodes again, and seed 2 others; also
    outside a study, and whatever trains beside it.
    """
    command = [sys.executable, "-m", "seed_rl.launch.local", "gym", agent[0], "1", "8"]
    command += ["--env_name=CartPole-v1", f"--total_environment_frames={FRAMES}", *agent[1:]]
    twice = [
        [*command, "--seeds=2", "--at_once=2", f"--logdir={tmp_path}/a"],
        [*command, "--seed=1", "--tensorboard=false", f"--logdir={tmp_path}/b"],
    ]
    output = [
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in twice
    ]
    printed = [process.communicate()[0] for process in output]
    assert [process.returncode for process in output] == [0, 0], printed
    assert "over 2 seeds" in printed[0] and (tmp_path / "a/curves.png").exists()
    first, second, again = (  # What is acted after the last step depends on the clock.
        [r._replace(time=0) for r in returns_log.read(tmp_path / run / FILE) if r.frames <= FRAMES]
        for run in ("a/runs/0000-seed1", "a/runs/0000-seed2", "b")
    )
    assert len(first) > 50 and first == again != second
    # Plots have no stairs: episodes end at frames of their own, but for those of the same step.
    ends = [row.frames for row in first]
    assert ends == sorted(ends) and len(set(ends)) > 0.9 * len(ends)


def test_a_seed_that_failed_runs_again(tmp_path, monkeypatch):
    """Guards a seed that is left out for ever because its disk was full once."""
    started = []
    monkeypatch.setattr(program, "_run", lambda _, __, retry_failed: started.append(retry_failed))
    program.main(["seeds", *LINE, f"--logdir={tmp_path}/study", "--total_environment_frames=9"])
    assert started == [True]
