"""gcp/submit.py and the scenarios: the jobs, the API's own schema, and messages.

The jobs of a training and of a tuning are in jobs.yaml, for review.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

from gcp import job, submit
from seed_rl.common.errors import UserError
from tests.gcp.scenarios import MACHINES, NETWORK, SCENARIOS, parse, run, submitted
from tests.helpers import REPOSITORY

REVIEWED = yaml.safe_load(pathlib.Path(__file__).with_name("jobs.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", REVIEWED)
def test_dry_runs_are_the_reviewed_jobs(name: str) -> None:
    assert submitted(name) == REVIEWED[name]


def _pools(scenario: str) -> list[dict[str, Any]]:
    """The pools of all jobs: their strategy, and variables and arguments of their containers."""
    found = []
    for spec in submitted(scenario).values():
        job_spec = spec.get("trialJobSpec", spec)
        for pool in job_spec["workerPoolSpecs"]:
            container = pool["containerSpec"]
            found.append(
                {
                    "strategy": job_spec["scheduling"]["strategy"],
                    "arguments": container["args"],
                    **{variable["name"]: variable["value"] for variable in container["env"]},
                }
            )
    return found


def test_a_learner_that_must_stay_and_actors_that_may_go_are_two_jobs() -> None:
    """Guards the learner from spot machines, and environments from having one id twice."""
    assert len(submitted("train_football_spot_actors")) == 2
    learner, *actors = _pools("train_football_spot_actors")
    assert (learner["strategy"], {pool["strategy"] for pool in actors}) == ("STANDARD", {"SPOT"})
    assert all("SEED_RL_ADDRESS_OBJECT" in pool for pool in (learner, *actors))
    assert [pool["SEED_RL_FIRST_MACHINE"] for pool in actors] == ["0", "1"]


@pytest.mark.parametrize(
    ("scenario", "flag"),
    [
        ("train_dmlab_rooms_watermaze", "--game=rooms_watermaze"),
        ("train_football_scoring", "--reward_experiment=scoring"),
        ("train_football_checkpoints", "--reward_experiment=scoring,checkpoints"),
        ("train_atari_spot", "--game=Breakout"),
    ],
)
def test_scenarios_have_the_flags_of_their_names(scenario: str, flag: str) -> None:
    assert all(flag in pool["arguments"] for pool in _pools(scenario))


def test_a_tuning_on_spot_machines() -> None:
    [spec] = submitted("sweep_spot").values()
    assert (spec["maxTrialCount"], {pool["strategy"] for pool in _pools("sweep_spot")}) == (
        50,
        {"SPOT"},
    )


def test_the_yaml_means_what_was_to_be_submitted() -> None:
    odd = ("--evaluators=2", "--gin_bindings=a = 'b:'", '--gin_bindings=c = "#"')
    request = parse("mujoco", "ppo", "40", "8", *MACHINES, *odd)
    [(_, spec)] = submit.commands(request)
    assert yaml.safe_load(job.to_yaml(spec)) == spec
    study = f"--study={REPOSITORY}/gcp/studies/atari_vtrace.json"
    [(_, spec)] = submit.commands(parse("atari", "vtrace", "4", *MACHINES, study))
    assert yaml.safe_load(job.to_yaml(spec)) == spec  # YAML has ideas of its own about 5e-05.


# The API's own schema.


def _validate(spec: dict) -> None:
    types = pytest.importorskip(
        "google.cloud.aiplatform_v1.types", reason="needs google-cloud-aiplatform"
    )
    from google.protobuf import json_format

    tuning = "trialJobSpec" in spec
    message = types.HyperparameterTuningJob if tuning else types.CustomJobSpec
    json_format.ParseDict(spec, message.pb(message()), ignore_unknown_fields=False)


@pytest.mark.parametrize("name", SCENARIOS)
def test_jobs_fit_the_schema_of_the_api(name: str) -> None:
    for spec in submitted(name).values():
        _validate(spec)


# What is rented is what is used.


def test_every_scenario_rents_machines_for_its_actors_and_the_image_for_its_gpus() -> None:
    for name in SCENARIOS:
        actors, places = 0, 0
        for spec in submitted(name).values():
            for pool in spec.get("trialJobSpec", spec)["workerPoolSpecs"]:
                container = pool["containerSpec"]
                variables = {v["name"]: v["value"] for v in container["env"]}
                gpu = "acceleratorCount" in pool["machineSpec"]
                assert container["imageUri"].endswith("-gpu") == gpu
                if "SEED_RL_ACTORS_PER_MACHINE" in variables:
                    assert not gpu
                    actors = int(container["args"][2])
                    each = int(variables["SEED_RL_ACTORS_PER_MACHINE"])
                    places += pool["replicaCount"] * each
        assert actors <= places < actors + each


# Several learners.

SHARE = "--nfs=10.0.0.2:/exports/runs"
TWO = ("gym", "vtrace", "16", "4", *MACHINES, "--learners=2", "--insecure")


def test_each_learner_uses_all_gpus_of_its_machine() -> None:
    """Guards against the refusal of GPUs that a single learner would leave idle."""
    request = parse(*TWO, NETWORK, SHARE, "--learner_machine=a2-highgpu-4g")
    assert request.plan.learner.accelerators == 4
    with pytest.raises(UserError, match="uses only gpu:0, gpu:1"):
        parse(*TWO[:-2], "--learner_machine=a2-highgpu-4g")


def test_further_learners_are_the_third_pool() -> None:
    """The first has one replica. All learners mount the share, and have no bucket."""
    request = parse(
        *TWO, NETWORK, SHARE, "--evaluators=3", "--name=two", "--learners=3", "--actors=18"
    )
    [(_, spec)] = submit.commands(request)
    _validate(spec)
    learner, actors, further, *_ = spec["workerPoolSpecs"]
    assert (learner["replicaCount"], further["replicaCount"]) == (1, 2)
    assert {**further, "replicaCount": 1} == learner
    mount = {"server": "10.0.0.2", "path": "/exports/runs", "mountPoint": "runs"}
    assert learner["nfsMounts"] == [mount] and "nfsMounts" not in actors
    for pool in (learner, actors, further):
        arguments = pool["containerSpec"]["args"]
        assert {"--learners=3", "--insecure", "--logdir=/mnt/nfs/runs/two"} <= {*arguments}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (TWO, "2 learners need a directory .*--nfs=IP:/PATH and --network"),
        ((*TWO, SHARE), "2 learners need a directory"),
        ((*TWO, SHARE, NETWORK, "--logdir=gs://b/x"), "leave --logdir out"),
        ((*TWO, NETWORK, "--nfs=share"), "--nfs=share: write IP:/PATH"),
        ((*TWO[:-1], NETWORK, SHARE), "2 learners exchange gradients without .*add --insecure"),
        ((*TWO, NETWORK, SHARE, "--spot=actors"), "cannot be combined with --study or --spot=act"),
        (("gym", "vtrace", "4", *MACHINES, NETWORK, SHARE), "--nfs is for several learners"),
    ],
)
def test_mistakes_with_several_learners(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(*arguments)


# The command line.


def test_later_values_win_and_flag_files_are_spelled_out() -> None:
    plan = parse(
        *("atari", "r2d2", "32", "8", "--flagfile=seed_rl/atari/r2d2_paper.flags", "--game=Pong"),
        *(*MACHINES, "--tag=2", "--game=Breakout", "--batch_size=32", "--actors=5", "--tag=3"),
    ).plan
    assert plan.arguments[:4] == ("atari", "r2d2", "5", "8") and plan.actors == 5
    assert "--burn_in=40" in plan.arguments
    assert [a for a in plan.arguments if a.startswith("--game")][-1] == "--game=Breakout"
    assert [a for a in plan.arguments if a.startswith("--batch_size")][-1] == "--batch_size=32"
    assert not any(a.startswith("--flagfile") for a in plan.arguments)
    assert plan.learner_image.endswith("/seed-rl-atari:3")
    assert plan.logdir == "gs://my-runs/runs/atari-r2d2-Breakout"


def test_a_run_is_named_by_its_environment() -> None:
    """Guards two runs in one directory, by each way to name an environment."""
    for flag in ("--game=Pong", "--env_name=Pong", "--env=Pong"):
        plan = parse("gym", "vtrace", "4", *MACHINES, flag).plan
        assert plan.logdir == "gs://my-runs/runs/gym-vtrace-Pong"


def test_actors_of_a_program_without_an_agent(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "mine.py"
    program.touch()
    plan = parse(str(program), "4", "8", *MACHINES, "--actors=16", "--envs_per_actor=2").plan
    assert plan.arguments[:3] == (str(program), "16", "2") and plan.actors == 16


def test_a_flag_given_several_times_is_kept_each_time(tmp_path: pathlib.Path) -> None:
    """A program of the user's may add up its values, as gin_bindings are."""
    program = tmp_path / "mine.py"
    program.touch()
    given = ("--gin_bindings=a = 1", "--gin_bindings=b = 2", "--maze=a", "--maze=b")
    plan = parse(str(program), "4", *MACHINES, *given).plan
    assert plan.arguments[2:-1] == given


def test_places_can_be_overridden() -> None:
    request = parse(
        *("gym", "vtrace", "4", *MACHINES, "--bucket=gs://other/folder", "--name=my run"),
        *("--registry=docker.io/me", "--token_secret=projects/p/secrets/s/versions/3"),
    )
    plan = request.plan
    assert plan.logdir == "gs://other/folder/runs/my_run"
    assert plan.learner_image == "docker.io/me/seed-rl-base:1.0"
    assert plan.actor_image == "docker.io/me/seed-rl-base-actor:1.0"
    assert plan.token_secret == "projects/p/secrets/s/versions/3"
    logdir = parse("gym", "vtrace", "4", *MACHINES, "--logdir=gs://b/x").plan
    assert logdir.arguments[-1] == "--logdir=gs://b/x" == f"--logdir={logdir.logdir}"
    assert parse("gym", "vtrace", "4", *MACHINES, "--job-dir=gs://b/y").plan.logdir == "gs://b/y"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("atari", "r2d2", "4"),
            "--learner_machine, --actor_machine: give a value, or set SEED_RL_",
        ),
        (("atary", "r2d2", "4", *MACHINES), "Unknown game 'atary'"),
        (("gym", "vtrace", *MACHINES), "Expected GAME AGENT ACTORS"),
        (("gym", "vtrace", "4", *MACHINES, "--logdir=/tmp/x"), "use gs://BUCKET"),
        (("gym", "vtrace", "4", *MACHINES, "--spot=actors"), "--spot=actors rents .*--network="),
        (
            ("gym", "vtrace", "4", *MACHINES, "--spot=actors", NETWORK, "--study=x.json"),
            "trials are single jobs",
        ),
        (("gym", "vtrace", "4", *MACHINES, "--study=/nowhere.json"), "--study=/nowhere.json"),
        (("gym", "vtrace", "4", *MACHINES, "--flagfile=nowhere.flags"), "nowhere.flags: No such"),
        (
            ("gym", "vtrace", "4", *MACHINES, "--actor_machine=g2-standard-8"),
            "has accelerators, which actors do not use",
        ),
        (
            ("gym", "vtrace", "4", *MACHINES, "--actor_machine=custom"),
            "does not include the number of CPUs.*--actors_per_machine",
        ),
        (("gym", "vtrace", "4", *MACHINES, "--task=3"), "--task cannot be set here"),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        submit.commands(parse(*arguments))


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "week"])
def test_days_that_no_job_can_last(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("gym", "vtrace", "4", *MACHINES, f"--days={days}")
    assert f"--days: must be a positive number, not '{days}'" in capsys.readouterr().err


def test_flags_of_the_program_are_checked_here() -> None:
    """And not on machines that are already rented."""
    done = run("scenario.sh", "train_atari", "--dry_run", "--learning_rat=1")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and "Unknown command line flag 'learning_rat'" in line


def test_where_flags_cannot_be_checked_that_is_said(python_without_packages: str) -> None:
    done = run(
        "scenario.sh",
        "train_atari",
        "--dry_run",
        "--learning_rat=1",
        PYTHON=python_without_packages,
    )
    [line] = done.stderr.splitlines()
    assert line.startswith("warning: flags were not checked, because")
    assert done.returncode == 0 and '"--learning_rat=1"' in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("entropy_cost", "entropy_cots", "Unknown command line flag 'entropy_cots'"),
        ("minValue", "min", "--study: a parameter is malformed (KeyError: 'values')"),
        ("parameters", "parameter", "--study: a parameter is malformed (KeyError: 'parameters')"),
    ],
)
def test_parameters_of_a_study_are_checked(
    right: str, wrong: str, message: str, tmp_path: pathlib.Path
) -> None:
    """Those of gcp/studies are, too, by the dry runs above."""
    text = (REPOSITORY / "gcp/studies/atari_vtrace.json").read_text("utf-8")
    (tmp_path / "study").write_text(text.replace(right, wrong))
    done = run("scenario.sh", "sweep_atari", "--dry_run", f"--study={tmp_path}/study")
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: ") and message in line


def test_a_python_that_is_not_there() -> None:
    done = run("scenario.sh", "train_atari", "--dry_run", PYTHON="/nowhere/python")
    assert done.returncode == 2
    assert done.stderr == "error: PYTHON=/nowhere/python: No such file or directory.\n"
