"""The scripts' command lines for the engine, and their messages, with a stand-in for `docker`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex

import pytest

from tests import helpers

RUN = ["atari", "vtrace", "2", "4", "--game=Pong"]
# Notes its command line; knows the images that the file beside it names, with their labels.
STAND_IN = """\
#!/usr/bin/env bash
here="$(dirname "$0")"
case "$1 ${2:-}" in
  "version "*) cat "$here/engine" ;;
  "info "*) cat "$here/info" ;;
  "image inspect") grep -qs . "$here/images" && cat "$here/images" ;;
  *) printf '%q ' "$@" >> "$here/calls"; echo >> "$here/calls" ;;
esac
"""


@dataclasses.dataclass
class Docker:
    """The stand-in."""

    folder: pathlib.Path
    repository: pathlib.Path

    def call(self, script: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """Runs a script in an empty working directory; returns its exit code and messages."""
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("SEED_RL", "DOCKER"))}
        inherited["PATH"] = f"{self.folder}:{os.environ['PATH']}"
        command = [self.repository / script, *arguments]
        done = helpers.run(*command, cwd=self.work, env={**inherited, **environment})
        return done.returncode, done.stderr

    @property
    def work(self) -> pathlib.Path:
        return self.folder / "work"

    def calls(self, command: str) -> list[list[str]]:
        """The arguments of each `docker COMMAND` so far."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words[1:] for words in map(shlex.split, lines) if words[0] == command]

    def runs(self, *arguments: str, **environment: str) -> list[str]:
        """The arguments of `docker run` for docker/run.sh, without a GPU unless it says so."""
        self.has_images()
        before = len(self.calls("run"))
        code, messages = self.call(
            "docker/run.sh", *arguments, **{"SEED_RL_GPU": "false", **environment}
        )
        assert code == 0, messages
        (run,) = self.calls("run")[before:]
        return run

    def has_images(self) -> None:
        """As if all images had been built from this source."""
        script = f"source {self.repository}/docker/lib.sh; source_fingerprint"
        made_from = helpers.run("bash", "-c", script)
        (self.folder / "images").write_text(made_from.stdout)


@pytest.fixture
def docker(repository, tmp_path) -> Docker:
    (tmp_path / "docker").write_text(STAND_IN)
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "engine").write_text("28.0\n")
    (tmp_path / "info").write_text("[name=seccomp,profile=builtin]\n")
    (tmp_path / "work").mkdir()
    return Docker(tmp_path, repository)


def values(arguments: list[str], option: str) -> list[str]:
    """What follows each occurrence of an option."""
    return [b for a, b in zip(arguments, arguments[1:], strict=False) if a == option]


def test_run_local_in_a_container(docker):
    """The caller's command, as the caller, with the logdir at its own path; --docker stays here."""
    docker.has_images()
    code, messages = docker.call(
        "run_local.sh", "--docker", *RUN, "--logdir=a/b", SEED_RL_GPU="false"
    )
    assert code == 0, messages
    (run,) = docker.calls("run")
    assert run[-len(RUN) - 1 :] == [*RUN, "--logdir=a/b"]
    assert values(run, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(run, "--volume") == [f"{docker.work}/a/b:{docker.work}/a/b"]
    assert (docker.work / "a" / "b").is_dir()
    assert values(run, "--workdir") == [str(docker.work)]
    assert "--tty" not in run and "--gpus" not in run
    assert docker.calls("build") == []


def test_images_are_built_if_the_source_has_changed(docker):
    (docker.folder / "images").write_text("another-source\n")
    code, messages = docker.call("run_local.sh", *RUN, "--docker", SEED_RL_GPU="false")
    assert code == 0, messages
    base, atari = docker.calls("build")
    assert values(base, "--tag")[0].startswith("seed-rl-base:")
    assert values(base, "--build-arg") == ["TENSORFLOW=cpu"]
    assert values(atari, "--tag")[0].startswith("seed-rl-atari:")
    assert f"BASE={values(base, '--tag')[0]}" in values(atari, "--build-arg")
    assert len(docker.calls("run")) == 1


def test_images_of_families(docker):
    """Guards actors' images, which must have neither TensorFlow nor OpenCV, from learners'."""
    code, messages = docker.call("docker/build.sh", "atari", "football", "dmlab")
    assert code == 0, messages
    made = {}
    for call in docker.calls("build"):
        name = values(call, "--tag")[0].partition(":")[0]
        given = dict(value.split("=", 1) for value in values(call, "--build-arg"))
        file = values(call, "--file")[0].rpartition(".")[2]
        made[name] = file, given.get("BASE", "").partition(":")[0], given.get("REQUIREMENTS")
    assert made == {
        "seed-rl-base": ("base", "", None),
        "seed-rl-base-actor": ("base", "", None),
        "seed-rl-atari": ("family", "seed-rl-base", "atari"),
        "seed-rl-atari-actor": ("family", "seed-rl-base-actor", "atari-actor"),
        "seed-rl-football": ("family", "seed-rl-base", "football"),
        "seed-rl-football-actor": ("family", "seed-rl-base-actor", "football"),
        "seed-rl-dmlab": ("dmlab", "seed-rl-base", "dmlab"),
        "seed-rl-dmlab-actor": ("dmlab", "seed-rl-base-actor", "dmlab"),
    }


def test_gpus_are_passed(docker):
    (docker.folder / "info").write_text("map[nvidia:{} runc:{}]\n")
    run = docker.runs(*RUN, SEED_RL_GPU="true")
    assert values(run, "--gpus") == ["all"]
    assert any(word.endswith("-gpu") for word in run)


@pytest.mark.parametrize(("visible", "gpus"), [("1", ["all"]), ("-1", []), ("", [])])
def test_the_callers_choice_of_gpus_holds_in_the_container(docker, visible, gpus):
    """Guards a colleague's GPU. The value is not on the command line, as W&B's key must not be."""
    (docker.folder / "info").write_text("map[nvidia:{} runc:{}]\n")
    (docker.folder / "nvidia-smi").symlink_to("/bin/true")
    chosen = {"CUDA_VISIBLE_DEVICES": visible, "WANDB_API_KEY": "secret", "MUJOCO_GL": "egl"}
    run = docker.runs(*RUN, **chosen, SEED_RL_GPU="")
    assert values(run, "--gpus") == gpus
    assert {*chosen} <= set(values(run, "--env"))
    assert "secret" not in " ".join(run)
    run = docker.runs(*RUN, **chosen, SEED_RL_GPU="true")
    assert ("CUDA_VISIBLE_DEVICES" in values(run, "--env")) == (visible == "1")


def test_a_rootless_engine_maps_the_caller_to_root(docker):
    (docker.folder / "info").write_text("[name=seccomp name=rootless]\n")
    run = docker.runs(*RUN)
    assert values(run, "--user") == ["0:0"]
    assert values(run, "--pid") == []


def test_starting_over_may_move_the_old_run_aside(docker):
    run = docker.runs(*RUN, "--logdir=runs/x", "--restart=fresh")
    assert values(run, "--volume") == [f"{docker.work}/runs:{docker.work}/runs"]


@pytest.mark.parametrize("flag", ["--logdir", "--job-dir"])
def test_files_in_the_home_folder(docker, flag):
    """Are in the caller's home, not the container's."""
    (docker.folder / "a.flags").touch()
    run = docker.runs(*RUN, "--flagfile=~/a.flags", f"{flag}=~/pong", HOME=str(docker.folder))
    paths = [f"{docker.folder}/{name}" for name in ("a.flags", "pong")]
    assert run[-2:] == [f"--flagfile={paths[0]}", f"{flag}={paths[1]}"]
    assert values(run, "--volume") == [f"{path}:{path}" for path in paths]


@pytest.mark.parametrize("flags", [["--expose"], ["--expose=86", "--secrets=~/other"]])
def test_an_exposed_run_sees_its_secrets(docker, flags):
    """Those of --secrets, in the caller's home folder if it says so, or else of the default."""
    for folder in ("secrets", "other"):
        (docker.work / folder).mkdir()
    run = docker.runs(*RUN, *flags, HOME=str(docker.work))
    place = docker.work / ("secrets" if flags == ["--expose"] else "other")
    runs = docker.work / "runs"
    assert values(run, "--volume") == [f"{runs}:{runs}", f"{place}:{place}:ro"]
    assert flags == ["--expose"] or run[-1] == f"--secrets={place}"


def test_only_what_flags_name_is_shown(docker):
    """A folder without a slash, too; secrets only with --expose, and only if they are there."""
    for folder in ("secrets", "levels"):
        (docker.work / folder).mkdir()
    first = docker.runs(*RUN, "--level_cache_dir=levels")
    second = docker.runs(*RUN, "--expose", "--secrets=no")
    levels, runs = docker.work / "levels", docker.work / "runs"
    assert values(first, "--volume") == [f"{levels}:{levels}", f"{runs}:{runs}"]
    assert values(second, "--volume") == [f"{runs}:{runs}"]


def test_a_program_of_ones_own(docker):
    """Gets the working directory, where a checkout must not pass for the image's SEED RL."""
    (docker.work / "mine.py").touch()
    (docker.work / "seed_rl").mkdir()
    run = docker.runs("mine.py", "1")
    assert f"{docker.work}:{docker.work}" in values(run, "--volume")
    assert values(run, "--tmpfs") == [f"{docker.work}/seed_rl"]
    assert any(word.startswith("seed-rl-base:") for word in run)


def test_one_process_of_a_run(docker):
    """An actor gets the small image, and its settings and secrets."""
    (docker.work / "secrets").mkdir()
    settings = {"SEED_RL_ROLE": "actor", "SEED_RL_INDEX": "3", "SEED_RL_ADDRESS": "learner:8686"}
    run = docker.runs(*RUN, SEED_RL_SECRETS="secrets", **settings)
    assert {*settings, "SEED_RL_SECRETS"} <= set(values(run, "--env"))
    assert f"{docker.work}/secrets:{docker.work}/secrets:ro" in values(run, "--volume")
    assert any(word.startswith("seed-rl-atari-actor:") for word in run)
    assert "--entrypoint" not in run


@pytest.mark.parametrize("role", ["learner", "proxy"])
def test_learner_and_proxy_share_the_folder_of_their_socket(docker, role):
    run = docker.runs(*RUN, SEED_RL_ROLE=role, SEED_RL_PROXY="proxy/socket")
    assert f"{docker.work}/proxy:{docker.work}/proxy" in values(run, "--volume")
    assert "SEED_RL_PROXY" in values(run, "--env")


def test_tensorboard_has_an_image_of_its_own(docker):
    """Guards pods that would fetch a learner's gigabytes to draw curves."""
    docker.has_images()
    environment = {"SEED_RL_REGISTRY": "host/path", "SEED_RL_TAG": "1"}
    code, messages = docker.call("docker/build.sh", "tensorboard", **environment)
    assert code == 0, messages
    (build,) = docker.calls("build")
    assert values(build, "--target") == ["tensorboard"]
    code, messages = docker.call("docker/push.sh", "tensorboard", **environment)
    assert code == 0, messages
    assert docker.calls("push") == [values(build, "--tag")]
    assert values(build, "--tag") == ["host/path/seed-rl-tensorboard:1"]


def test_push(docker):
    docker.has_images()
    code, messages = docker.call(
        "docker/push.sh", "atari", SEED_RL_REGISTRY="host/path", SEED_RL_TAG="1"
    )
    assert code == 0, messages
    assert docker.calls("push") == [
        ["host/path/seed-rl-atari:1"],
        ["host/path/seed-rl-atari-actor:1"],
    ]


@pytest.mark.parametrize(
    "script, arguments, message",
    [
        ("docker/build.sh", [], "which environments?"),
        ("docker/build.sh", ["atary"], "unknown family 'atary'"),
        ("docker/build.sh", ["--cpu", "atari"], "unknown option --cpu"),
        ("docker/push.sh", ["atari"], "Set SEED_RL_REGISTRY"),
        ("docker/run.sh", ["chess", "vtrace", "1"], "unknown game 'chess'"),
        ("docker/run.sh", ["mine.py", "1", "--logdir=/"], "machine's /"),
        ("run_local.sh", ["--docker", "atari", "vtrace", "none"], "ACTORS must be a positive"),
    ],
)
def test_mistakes_end_with_a_message(docker, script, arguments, message):
    code, messages = docker.call(script, *arguments)
    assert code == 2
    assert message in messages
    assert docker.calls("build") == docker.calls("run") == docker.calls("push") == []


def test_a_registry_copied_from_the_docs(docker):
    registry = "europe-docker.pkg.dev/PROJECT/REPOSITORY"
    code, messages = docker.call("docker/build.sh", "atari", SEED_RL_REGISTRY=registry)
    assert code == 2 and "names of images have no capitals" in messages
    assert docker.calls("build") == []


def test_a_typo_in_secrets_makes_no_folder(docker):
    docker.has_images()
    settings = {"SEED_RL_ROLE": "actor", "SEED_RL_SECRETS": "nowhere"}
    code, messages = docker.call("docker/run.sh", *RUN, **settings)
    assert code == 2 and "SEED_RL_SECRETS=nowhere is not a folder" in messages
    assert docker.calls("run") == []


def test_an_image_that_was_not_built_is_not_pushed(docker):
    code, messages = docker.call("docker/push.sh", "atari", SEED_RL_REGISTRY="host/path")
    assert code == 2
    assert "build it first: docker/build.sh atari" in messages


def test_a_gpu_that_the_engine_cannot_pass(docker):
    docker.has_images()
    if any(os.access(f"{p}/nvidia-ctk", os.X_OK) for p in os.environ["PATH"].split(":")):
        pytest.skip("NVIDIA's container toolkit is installed here")
    code, messages = docker.call("docker/run.sh", *RUN, SEED_RL_GPU="true")
    assert code == 2
    assert "container toolkit" in messages and "SEED_RL_GPU=false" in messages


def test_no_engine(docker):
    helpers.stand_in(docker.folder / "docker", "echo permission denied >&2; exit 1")
    code, messages = docker.call("docker/build.sh", "atari")
    assert code == 2
    assert "error: Docker's engine does not answer: permission denied\n" in messages
    assert "usermod" in messages
