"""The command line of each process of a run."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from seed_rl.cluster import learners, run
from seed_rl.cluster.run import ClusterRun
from seed_rl.common.errors import UserError

TASK = ["atari", "vtrace", "3", "4", "--game=Pong"]


def describe(*flags, **settings):
    options, logdir = run.parse([*TASK, *flags], settings.get("evaluators", 0))
    return ClusterRun(**{"options": options, "logdir": logdir, "address": "host:86", **settings})


@pytest.fixture
def secrets(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).touch()
        return tmp_path

    return make


def test_learner():
    program = [sys.executable, "-m", "seed_rl.atari.vtrace_main"]
    assert describe("--logdir=/x", "--batch_size=2").learner_command() == [
        *program,
        "--save_checkpoint_secs=90",
        "--game=Pong",
        "--batch_size=2",
        "--run_mode=learner",
        "--server_address=0.0.0.0:86",
        "--num_envs=12",
        "--env_batch_size=4",
        "--logdir=/x",
    ]


@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_learner_that_saves_its_replay_each_time_does_so_less_often(in_a_file, tmp_path):
    """Guards a bucket, which gets the whole replay with each checkpoint; the last value counts."""

    def saves(*flags):
        path = tmp_path / "flags"
        path.write_text("\n".join(flags))
        given = [f"--flagfile={path}"] if in_a_file else flags
        command = describe(*given).learner_command()
        return "--save_checkpoint_secs=90" in command[: command.index("--game=Pong")]

    assert saves("--save_replay=stop")
    assert not saves("--save_replay=always")
    assert saves("--save_replay=always", "--save_replay=stop")


def test_a_flag_file_that_is_missing_is_left_to_the_program():
    assert "--flagfile=/nowhere" in describe("--flagfile=/nowhere").learner_command()


def test_actor():
    assert describe().actor_command(2)[3:] == [
        "--game=Pong",
        "--run_mode=actor",
        "--server_address=host:86",
        "--num_envs=12",
        "--env_batch_size=4",
        "--task=2",
    ]


def test_evaluators_have_the_environments_after_those_of_the_actors():
    evaluated = describe(evaluators=2)
    evaluator = evaluated.evaluator_command(1)
    assert evaluator[-3:] == ["--env_batch_size=4", "--num_eval_envs=8", "--task=4"]
    for command in (evaluator, evaluated.actor_command(0), evaluated.learner_command()):
        assert {"--num_envs=20", "--num_eval_envs=8"} <= set(command)


def test_evaluation_environments_of_actors_stay_possible():
    assert "--num_eval_envs=4" in describe("--num_eval_envs=4").actor_command(0)


def test_a_flag_file_changes_no_setting_of_the_run():
    """Guards the order: of two values of a flag, the later counts."""
    command = describe("--flagfile=x").actor_command(0)
    flag_file = command.index("--flagfile=x")
    assert flag_file < min(i for i, a in enumerate(command) if a.startswith("--run_mode"))


def test_a_program_of_the_users(tmp_path):
    program = tmp_path / "maze.py"
    program.touch()
    options, _ = run.parse([str(program), "r2d2", "1"])
    command = ClusterRun(options, address="host:86").actor_command(0)
    assert command[1:3] == [str(program), "--agent=r2d2"]


@pytest.mark.parametrize(
    ("address", "bind", "listens"),
    [
        ("learner:86", None, "0.0.0.0:86"),
        ("10.0.0.1:86", None, "0.0.0.0:86"),
        ("[fd00::1]:86", None, "[::]:86"),
        ("learner:86", "[::]", "[::]:86"),
        ("learner:86", "10.0.0.1", "10.0.0.1:86"),
        # Nobody else need reach it.
        ("127.0.0.1:86", None, "127.0.0.1:86"),
        ("localhost:86", None, "localhost:86"),
        ("[::1]:86", None, "[::1]:86"),
        ("localhost:86", "0.0.0.0", "0.0.0.0:86"),
        ("unix:/x", None, "unix:/x"),
    ],
)
def test_where_the_learner_listens(address, bind, listens):
    described = describe(address=address, bind=bind)
    assert f"--server_address={listens}" in described.learner_command()
    assert f"--server_address={address}" in described.actor_command(0)


def test_actors_of_a_learner_that_moves_give_up_soon():
    """Guards the restart that tells them the new address; the user's own timeout counts."""
    command = describe("--reconnect_timeout_s=5", moves=True).actor_command(0)
    assert "--connect_timeout_s=30" in command
    assert command.index("--reconnect_timeout_s=30") < command.index("--reconnect_timeout_s=5")
    assert not any("timeout" in argument for argument in describe().actor_command(0))


def test_secrets(secrets):
    """Each process gets only what it needs; the user's flags come later."""
    files = ("token", "cert.pem", "key.pem", "ca.pem", "actor-cert.pem", "actor-key.pem", "other")
    described = describe(secrets=secrets(*files))
    folder = described.secrets
    assert described.learner_command()[3:8] == [
        f"--auth_token_file={folder}/token",
        f"--tls_certificate={folder}/cert.pem",
        f"--tls_key={folder}/key.pem",
        "--save_checkpoint_secs=90",
        "--game=Pong",
    ]
    assert described.actor_command(0)[3:8] == [
        f"--auth_token_file={folder}/token",
        f"--tls_ca={folder}/ca.pem",
        f"--tls_cert={folder}/actor-cert.pem",
        f"--tls_key={folder}/actor-key.pem",
        "--game=Pong",
    ]


def test_only_a_token(secrets):
    described = describe(secrets=secrets("token"))
    for command in (described.learner_command(), described.actor_command(0)):
        assert f"--auth_token_file={described.secrets}/token" in command
        assert not any("tls" in argument for argument in command)


@pytest.mark.parametrize("names", [("cert.pem", "token"), ("key.pem",)])
def test_half_a_certificate(secrets, names):
    with pytest.raises(UserError, match="has no (key|cert).pem: .*scripts/make_secrets.sh"):
        describe(secrets=secrets(*names)).learner_command()


def test_no_secrets(secrets, tmp_path):
    with pytest.raises(UserError, match="has none of token, cert.pem, key.pem, ca.pem"):
        describe(secrets=secrets()).actor_command(0)
    gone = tmp_path / "gone"
    with pytest.raises(UserError, match="Cannot read SEED_RL_SECRETS=.*gone: No such file"):
        describe(secrets=gone).learner_command()


def test_tensorboard():
    described = describe("--logdir=/x", "--tensorboard_port=77", address=None)
    assert described.tensorboard_command()[2:] == [
        "seed_rl.launch.tensorboard",
        "--logdir=/x",
        "--host=localhost",
        "--port=77",
    ]
    remote = describe("--job-dir=gs://bucket/x", tensorboard_host="0.0.0.0")
    assert remote.tensorboard_command()[2:] == [
        "tensorboard.main",
        "--logdir=gs://bucket/x",
        "--host=0.0.0.0",
        "--port=6006",
    ]
    with pytest.raises(UserError, match="--logdir=DIR"):
        describe().tensorboard_command()


def test_a_logdir_in_the_home_folder(monkeypatch):
    """Shells leave `~` in a flag alone; ./run_local.sh expands it, too."""
    monkeypatch.setenv("HOME", "/home/me")
    assert describe("--logdir=~/pong").logdir == "/home/me/pong"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--server_address=x:1", "set SEED_RL_ADDRESS, for all processes"),
        ("--restart=fresh", "--restart=fresh cannot be set here"),
        ("--seeds=3", "--seeds is for ./run_local.sh alone"),
        ("--expose", "--expose is for ./run_local.sh alone"),
        ("--tensorboard=false", "--tensorboard=false is for ./run_local.sh alone"),
        ("--num_eval_envs=3", "--num_eval_envs cannot be set along with SEED_RL_EVALUATORS"),
        ("--logdir=", "--logdir needs a value"),
        ("--task=3", "--task cannot be set here"),
    ],
)
def test_flags_that_the_run_sets_itself(flag, message):
    with pytest.raises(UserError, match=message):
        describe(flag, evaluators=1)


@pytest.mark.parametrize("address", ["host", ":86", "host:", "host:x", "host:99999", "host:0"])
def test_malformed_address(address):
    message = f"'{address}' is not the address of a learner"
    with pytest.raises(UserError, match=message):
        describe(address=address).actor_command(0)
    with pytest.raises(UserError, match=message):
        describe(address=address).learner_command()


def test_missing_address():
    described = dataclasses.replace(describe(), address=None)
    with pytest.raises(UserError, match="address is missing: set SEED_RL_ADDRESS=HOST:PORT"):
        described.learner_command()
    with pytest.raises(UserError, match="address is missing"):
        described.actor_command(0)


def test_indices_out_of_range():
    run.check_index("learner", 1, 2, "--learners")
    with pytest.raises(UserError, match=r"no learner 2: the run has 2 \(0 to 1\).*--learners"):
        run.check_index("learner", 2, 2, "--learners")
    described = describe(evaluators=1)
    with pytest.raises(UserError, match=r"no actor 3: the run has 3 \(0 to 2\)\. Start fewer"):
        described.actor_command(3)
    with pytest.raises(UserError, match=r"no evaluator 1: the run has 1 .*SEED_RL_EVALUATORS"):
        described.evaluator_command(1)
    with pytest.raises(UserError, match="the run has none"):
        describe().evaluator_command(0)
    with pytest.raises(UserError, match="'a:1,b:2' has no address of learner 2"):
        learners.nth("a:1,b:2", 2)


# Several learners.

PLACES = "a:8686, [fd00::1]:9000"


def described_learners(*flags, **settings):
    return describe("--learners=2", *flags, **{"address": PLACES, **settings})


@pytest.fixture
def six_actors(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "TASK", ["atari", "vtrace", "6", "4"])


@pytest.mark.usefixtures("six_actors")
def test_several_learners_divide_actors_and_evaluators():
    """ACTORS are those of the whole run, as of ./run_local.sh; a learner's are numbered from 0."""
    run_of = described_learners(evaluators=2)
    exchange = "--learner_addresses=a:8786,[fd00::1]:9100"
    both = {"--num_envs=16", "--num_eval_envs=4", exchange}
    learner = dataclasses.replace(run_of, learner=1).learner_command()
    assert both | {"--server_address=[::]:9000", "--learner_index=1"} <= set(learner)
    places = []
    for command in map(run_of.actor_command, range(6)):
        assert both <= set(command)
        places.append((command[4], command[-2], command[-1]))
    first, second = "--server_address=a:8686", "--server_address=[fd00::1]:9000"
    assert places == [
        *((first, "--learner_index=0", f"--task={task}") for task in range(3)),
        *((second, "--learner_index=1", f"--task={task}") for task in range(3)),
    ]
    evaluator = run_of.evaluator_command(1)
    assert both | {second, "--learner_index=1", "--task=3"} <= set(evaluator)


@pytest.mark.usefixtures("six_actors")
def test_addresses_of_several_learners_by_a_pattern():
    command = described_learners(address="set-{}.learners:86").actor_command(5)
    assert "--server_address=set-1.learners:86" in command
    assert "--learner_addresses=set-0.learners:186,set-1.learners:186" in command


@pytest.mark.usefixtures("six_actors")
@pytest.mark.parametrize(
    ("flags", "settings", "message"),
    [
        ((), {"evaluators": 1}, "SEED_RL_EVALUATORS=1 cannot be divided among 2 learners"),
        (("--logdir=gs://b/x",), {}, "--logdir=gs://b/x: 2 learners need a directory that all"),
        (
            (),
            {"address": "a:86"},
            "--learners=2 and 'a:86' do not match: SEED_RL_ADDRESS must list",
        ),
        ((), {"address": "a:86,b:86,c:86"}, "do not match"),
        ((), {"address": "a:86,b"}, "'b' is not the address of one of several"),
        ((), {"address": "a:86,b:65500"}, "'b:65500' is not .* the port 100 above"),
    ],
)
def test_mistakes_with_several_learners(flags, settings, message):
    with pytest.raises(UserError, match=message):
        described_learners(*flags, **settings).learner_command()
