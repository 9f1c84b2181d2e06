"""The actor loop against a server whose answers the tests write."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import types
from typing import Any

import grpc
import numpy as np
import pytest
from absl import flags
from gymnasium import spaces

from seed_rl.common.acting import actor, actor_clock, environment_process
from seed_rl.common.acting.actor import ActorConfig, actor_loop
from seed_rl.common.acting.batched_env import BatchedEnvironment, BatchStep
from seed_rl.common.acting.environment_agreement import OtherEnvironment, check, counts, describe
from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.config import options
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import ExitCode, UserError
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import CallError, StatusCode
from seed_rl.testing import envs
from seed_rl.testing.scripted_learner import ScriptedLearner
from tests.helpers.actor_runs import ACTIONS, OBSERVATIONS, Recorder, make, run, serve
from tests.helpers.waiting import wait_until


def refused(learner: ScriptedLearner, message: str, **options: Any) -> None:
    """An actor of this learner ends with a message for the user."""
    with learner, pytest.raises(UserError, match=message):
        actor_loop(make, ActorConfig(server_address=learner.address, **options))


@pytest.mark.parametrize("size", [1, 3])
def test_calls_carry_the_protocol(size: int) -> None:
    """Everything a call carries, step for step, against environments that the test steps."""
    recorder = Recorder(calls=30)
    with serve(recorder) as learner:
        code = run(learner, make, env_batch_size=size, task=2)
    assert code == ExitCode.SUPERSEDED
    env = BatchedEnvironment(make, size, 2 * size)
    expected = BatchStep(env.reset(), *np.zeros((5, size)))
    for call, actions in zip(recorder.calls, recorder.actions, strict=True):
        env_ids, run_ids, env_output, raw_rewards = call
        assert env_ids.dtype == np.int32 and run_ids.dtype == np.int64
        assert env_ids.tolist() == list(range(2 * size, 3 * size))
        assert run_ids.tolist() == [recorder.calls[0][1][0]] * size and run_ids[0] > 0
        np.testing.assert_array_equal(env_output.observation[:, 1:], expected.observation[:, 1:])
        for name in ("reward", "done", "abandoned", "episode_step"):
            np.testing.assert_array_equal(getattr(env_output, name), getattr(expected, name))
        np.testing.assert_array_equal(raw_rewards, expected.raw_reward)
        expected = env.step(actions)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Steps: options of the test below."""

    episode_length_of_this_test: int = options.option(3, "")
    truncate_of_this_test: bool = options.option(False, "")
    made_by_of_this_test: str = options.option("", "")


def test_an_actor_takes_over_the_learners_environment(caplog, monkeypatch) -> None:
    """Guards runs that continue with options of their environment that are no defaults any more. An
    option that the user has typed stays; code is not taken from the network.
    """
    options.define_flags(Steps)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    monkeypatch.setattr(flags.FLAGS["truncate_of_this_test"], "present", 1)
    made = []

    def make(env_id: int, config: Steps) -> envs.LifeStepEnv:
        made.append((config.episode_length_of_this_test, config.truncate_of_this_test))
        return envs.LifeStepEnv(episode_length=config.episode_length_of_this_test)

    learner_has = {"episode_length_of_this_test": 7, "truncate_of_this_test": True, "unknown": 1}
    with serve(Recorder(calls=9), environment=learner_has) as learner:
        code = run(learner, make, Steps())
    assert (code, made) == (ExitCode.SUPERSEDED, [(3, False), (7, False)])
    assert "--truncate_of_this_test is false here, and true in the learner" in caplog.text

    code = {"made_by_of_this_test": "a:b"}
    message = "--made_by_of_this_test=a:b, which an actor accepts only"
    with serve(Recorder(), environment=code) as learner, pytest.raises(UserError, match=message):
        actor_loop(make, ActorConfig(server_address=learner.address), Steps())


def test_the_numbers_of_environments_are_the_learners(monkeypatch) -> None:
    """Guards DeepMind Lab, where they decide who plays the levels of tests."""

    @dataclasses.dataclass(frozen=True)
    class Counts:
        num_envs: int = 4
        num_eval_envs: int = 0

    untyped = flags.FlagValues()
    for name in ("num_envs", "num_eval_envs"):
        flags.DEFINE_integer(name, 0, "", flag_values=untyped)
    monkeypatch.setattr(flags, "FLAGS", untyped)
    learner = describe(counts(RunConfig(num_envs=60, num_eval_envs=30)))
    with pytest.raises(OtherEnvironment) as other:
        check(Counts(), learner)
    assert other.value.config == Counts(60, 30)
    check(Counts(60, 30), learner)
    check(Steps(), learner)  # Other environments do not depend on them.


def test_new_life_after_the_learner_was_away(socket_address: str) -> None:
    """Steps from before and after a lost connection must never join in one unroll."""
    first, second = Recorder(10**9), Recorder(calls=12)
    enough = threading.Event()

    def count(*args: Any) -> Any:
        if len(first.calls) == 25:
            enough.set()
        return first(*args)

    def restart() -> None:
        enough.wait()
        learner.close()
        time.sleep(1.0)  # Long enough for failed attempts.
        restarted.append(serve(second, address=socket_address))

    restarted: list[ScriptedLearner] = []
    learner = serve(count, address=socket_address)
    thread = threading.Thread(target=restart)
    thread.start()
    assert run(learner, make, env_batch_size=2, reconnect_timeout_s=60) == ExitCode.SUPERSEDED
    thread.join()
    restarted[0].close()
    assert {tuple(call[1]) for call in first.calls} != {tuple(call[1]) for call in second.calls}
    assert len({tuple(call[1]) for call in second.calls}) == 1
    env_output = second.calls[0][2]
    assert env_output.observation[:, 2].tolist() == [0, 0]  # The first step of episodes,
    assert env_output.observation[:, 1].min() > first.calls[-1][2].observation[:, 1].min()  # new
    assert env_output.reward.tolist() == [0, 0] and not env_output.done.any()
    assert env_output.episode_step.tolist() == [0, 0]


def test_gives_up_after_the_set_time(socket_address: str, capsys: Any) -> None:
    """A learner that never starts must not leave actors behind forever."""
    config = ActorConfig(server_address=socket_address, connect_timeout_s=0.5)
    with pytest.raises(SystemExit) as ending:
        actor_loop(make, config)
    assert ending.value.code == ExitCode.NO_LEARNER
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: No learner at {socket_address} for 0.5 s, giving up")


def test_gives_up_on_a_learner_that_went_away(socket_address: str) -> None:
    """The time counts from the last answer, not from the start."""
    recorder = Recorder(10**9)

    def leave(*args: Any) -> Any:
        if len(recorder.calls) == 5:
            threading.Thread(target=learner.close).start()
        return recorder(*args)

    learner = serve(leave, address=socket_address)
    assert run(learner, make, connect_timeout_s=60, reconnect_timeout_s=0.5) == (
        ExitCode.NO_LEARNER
    )
    assert len(recorder.calls) >= 5


def test_patience_begins_when_the_learner_is_lost(socket_address: str, monkeypatch: Any) -> None:
    """However long it took to answer before: it may have waited for training."""
    later, moved, passed_s = Recorder(calls=3), [], [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s[0])
    for module in (actor, actor_clock):
        monkeypatch.setattr(module, "time", clock)

    def move(*args: Any) -> Any:
        passed_s[0] += 1000.0
        learner.close()
        moved.append(serve(later, address=socket_address))

    recorder = Recorder(10**9)
    learner = serve(
        lambda *a: recorder(*a) if len(recorder.calls) < 5 else move(*a), address=socket_address
    )
    try:
        code = run(learner, make, reconnect_timeout_s=100)
    finally:
        for other in moved:
            other.close()
    assert code == ExitCode.SUPERSEDED and len(later.calls) == 3


def test_waits_for_a_learner_that_comes_late(socket_address: str) -> None:
    recorder, learners = Recorder(calls=3), []
    threading.Timer(0.7, lambda: learners.append(serve(recorder, address=socket_address))).start()
    with pytest.raises(SystemExit) as ending:
        actor_loop(make, ActorConfig(server_address=socket_address, connect_timeout_s=60))
    learners[0].close()
    assert ending.value.code == ExitCode.SUPERSEDED and len(recorder.calls) == 3


def test_superseded_says_what_to_do(capsys: Any) -> None:
    with serve(Recorder(0)) as learner:
        assert run(learner, make, task=3, env_batch_size=2) == ExitCode.SUPERSEDED
    error = capsys.readouterr().err.splitlines()[-1]
    assert "A newer actor is here." in error and "6 to 7" in error and "--task" in error


def test_a_learner_that_only_answers_with_errors(capsys: Any, monkeypatch: Any) -> None:
    """Guards the advice: it runs, and the address is right."""
    monkeypatch.setattr(
        actor, "ClientOptions", lambda **given: ClientOptions(**{**given, "connect_timeout_s": 60})
    )
    with serve(Recorder(0, CallError(StatusCode.INTERNAL, "out of memory"))) as learner:
        assert run(learner, make, connect_timeout_s=0.5) == ExitCode.NO_LEARNER
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: Cannot work with the learner at {learner.address} for 0.5 s")
    assert error.endswith("giving up (out of memory).")


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (StatusCode.INVALID_ARGUMENT, "Environment id 9 is not below 4", "--num_envs"),
        (StatusCode.PERMISSION_DENIED, "not you", "--auth_token_file"),
    ],
)
def test_refusals_that_only_the_user_can_mend(
    code: StatusCode, message: str, expected: str
) -> None:
    """An id out of range must not be tried forever."""
    refused(serve(Recorder(0, CallError(code, message))), f"{message}.*{expected}", task=9)


def test_observations_too_large_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a clear message: this would be tried until the learner counts as lost."""
    limited = functools.partial(ClientOptions, max_message_bytes=4000)
    monkeypatch.setattr(actor, "ClientOptions", limited)
    message = "environments 0 to 99 are too large.*--env_batch"
    refused(serve(Recorder()), message, env_batch_size=100)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT])
def test_a_refusal_before_the_learner_hands_out_environments(code: Any, monkeypatch: Any) -> None:
    """There are no ids to name yet."""
    monkeypatch.setattr(ScriptedLearner, "describe", lambda *args: args[-1].abort(code, "go away"))
    refused(serve(Recorder()), "this actor's environments: go away", task=-1)


def test_a_token_that_comes_late(tmp_path: Any, caplog: Any) -> None:
    """While secrets change, the file may be old, or away for a moment."""
    secret, new = tmp_path / "token", tmp_path / "new"
    secret.write_text("old")
    new.write_text("new")
    shown: list[str] = []

    def renew() -> None:
        wait_until(lambda: "Cannot read --auth_token_file" in caplog.text)
        new.rename(secret)

    class Learner(ScriptedLearner):
        def describe(self, request: bytes, context: Any) -> bytes:
            shown.append(dict(context.invocation_metadata())["authorization"])
            if len(shown) == 1:
                secret.unlink()
                threading.Thread(target=renew).start()
            return super().describe(request, context)

    with Learner(OBSERVATIONS, ACTIONS, Recorder(calls=2), token="new") as learner:
        assert run(learner, make, auth_token_file=str(secret)) == ExitCode.SUPERSEDED
    assert shown == ["Bearer old", "Bearer new"]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"][-2:]
    assert "refused by the learner" in warnings[0] and "copy the learner's file" in warnings[0]
    assert "Cannot read --auth_token_file" in warnings[1]


@pytest.mark.parametrize("shown", ["wrong", None])
def test_another_token_is_not_tried_for_ever(shown: str | None, tmp_path: Any, caplog: Any) -> None:
    """And none is not tried again at all."""
    secret, options = tmp_path / "token", {}
    if shown:
        secret.write_text(shown)
        options = {"auth_token_file": str(secret), "connect_timeout_s": 1.0}
    message = "Start both with the same --auth_token_file"
    refused(serve(Recorder(), token="right"), message, **options)
    assert ("refused by the learner" in caplog.text) == bool(shown)


@pytest.mark.parametrize("option", ["auth_token_file", "tls_ca", "tls_cert"])
def test_unreadable_files_are_told_at_once(option: str, tmp_path: Any) -> None:
    """Not tried again and again, as if the learner were away."""
    with pytest.raises(UserError, match=f"--{option}"):
        actor_loop(make, ActorConfig(**{option: str(tmp_path / "missing")}))


@pytest.mark.parametrize(
    ("observations", "actions", "action", "message"),
    [
        (
            *(spaces.Box(0, 255, (84, 84, 1), np.uint8), ACTIONS, 0),
            r"expects .*uint8\[84, 84, 1\].*returns float32\[4\]",
        ),
        (OBSERVATIONS, ACTIONS, 17, "action space"),
        # All of its actions are valid here, so nothing else would detect this.
        (OBSERVATIONS, spaces.Discrete(1), 0, "actions are 1 choices.*takes 2 choices"),
    ],
)
def test_a_learner_of_another_environment(
    observations: Any, actions: Any, action: int, message: str
) -> None:
    """Reported immediately and clearly, not as an error of the first call's third argument."""
    learner = ScriptedLearner(observations, actions, lambda ids, *_: np.full(len(ids), action))
    refused(learner, message)


def test_a_server_that_is_no_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported in one line, not as a crash after which a supervisor would restart the actor."""
    monkeypatch.setattr(ScriptedLearner, "describe", lambda *_: b"<html>")
    refused(serve(Recorder()), "Cannot use this learner")


def test_environment_that_raises(capsys: Any, caplog: Any) -> None:
    """The supervisor restarts the actor; the log has the environment's own traceback."""
    with serve(Recorder(10**9)) as learner:
        code = run(learner, lambda i, c: envs.FaultyEnv("raise", at=2), env_batch_size=2)
    assert code == ExitCode.ENVIRONMENT_FAILED
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: Environment 0 raised in step(). RuntimeError('the simulator crashed')"
    assert "RuntimeError" in caplog.text and "envs.py" in caplog.text


def test_environment_that_cannot_be_created(capsys: Any) -> None:
    def create(env_id: int, config: Any) -> Any:
        raise OSError("no display")

    with pytest.raises(SystemExit) as ending:
        actor_loop(create, ActorConfig(env_batch_size=2, task=1))
    assert ending.value.code == ExitCode.ENVIRONMENT_FAILED
    assert "Environments 2 to 3 could not be created" in capsys.readouterr().err


def test_environments_are_closed_however_it_ends() -> None:
    closed = []

    class Closing(envs.LifeStepEnv):
        def close(self) -> None:
            closed.append(True)

    with serve(Recorder(3)) as learner:
        run(learner, lambda i, c: Closing(), env_batch_size=2)
    assert closed == [True, True]


def test_after_an_error_a_life_begins_that_is_not_seeded_again() -> None:
    """An inference that failed (out of memory, say) does not cost the actor its life; with the old
    seed it would play the same episodes again.
    """
    seeds = []

    class Seeded(envs.LifeStepEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    recorder = Recorder(calls=6)
    failures = [CallError(StatusCode.INTERNAL, "out of memory")] * 2

    def fail_twice(*args: Any) -> Any:
        if len(recorder.calls) == 3 and failures:
            raise failures.pop()
        return recorder(*args)

    with serve(fail_twice) as learner:
        assert run(learner, lambda i, c: Seeded(), seed=3) == ExitCode.SUPERSEDED
    assert len(recorder.calls) == 6
    assert seeds[0] is not None and seeds[1:] == [None]  # The second failure found them reset.


def test_native_vector_environment_is_preferred_to_single_ones() -> None:
    """`create_batch` gets the actor's ids; None falls back to single environments."""
    asked = []

    def decline(env_ids: np.ndarray, config: Any) -> None:
        asked.append((env_ids.tolist(), config))

    recorder = Recorder(calls=2)
    with serve(recorder) as learner, pytest.raises(SystemExit):
        config = ActorConfig(server_address=learner.address, env_batch_size=2, task=1)
        actor_loop(make, config, "options", create_batch=decline)
    assert asked == [([2, 3], "options")] and len(recorder.calls) == 2


@pytest.mark.parametrize(
    ("field", "reward", "message"),
    [
        ("reward", np.array([0.5, None]), "Environment 3: its reward is None"),
        ("raw_reward", [0.5, None], "Environment 3: its raw_reward is None"),
        ("reward", np.ones((2, 1)), r"Environments 2 to 3: `reward` .* shape \[2, 1\], not \[2\]"),
        ("raw_reward", np.ones(3), r"Environments 2 to 3: `raw_reward` .* shape \[3\], not \[2\]"),
    ],
)
def test_rewards_of_a_vector_environment(field: str, reward: Any, message: str) -> None:
    """Guards the same check, and a message that does not blame the learner's options."""

    class Paying(BatchedEnvironment):
        def step(self, action_batch: Any) -> Any:
            return super().step(action_batch)._replace(**{field: reward})

    with serve(Recorder()) as learner, pytest.raises(UserError, match=message):
        config = ActorConfig(server_address=learner.address, env_batch_size=2, task=1)
        actor_loop(make, config, create_batch=lambda env_ids, _: Paying(make, 2, env_ids[0]))


def test_an_actor_ends_when_training_is_done():
    """Guards the exit code 0, also where one is set for actors that were stopped."""
    recorder = Recorder(3, CallError(StatusCode.OUT_OF_RANGE, "Training is done."))
    with serve(recorder) as learner:
        actor_loop(make, ActorConfig(server_address=learner.address, stopped_exit_code=75))
    assert len(recorder.calls) == 3


@pytest.mark.parametrize(
    ("task", "num_actors", "enabled"), [(0, 1, True), (1, 1, False), (-1, 1, True), (-1, 0, False)]
)
def test_which_actors_log_their_timing(task: int, num_actors: int, enabled: bool) -> None:
    config = ActorConfig(task=task, num_actors_with_summaries=num_actors)
    assert actor.are_summaries_enabled(config) is enabled


@pytest.mark.parametrize(("num_eval_envs", "ids"), [(2, [3, 4, 3]), (0, [0, 1, 2, 3, 4, 0])])
def test_which_environments_are_played(
    num_eval_envs: int, ids: list[int], monkeypatch: Any
) -> None:
    """Those for evaluation in turn, which may have levels of their own; without any, all."""
    made: list[int] = []

    def create_all(create_env: Any, request: EnvironmentRequest) -> None:
        for index in range(request.envs):
            create_env(index)

    monkeypatch.setattr(environment_process, "serve", create_all)
    request = EnvironmentRequest(envs=len(ids)).to_json()
    config = ActorConfig(num_envs=5, num_eval_envs=num_eval_envs, play_request=request)
    actor_loop(lambda env_id, _: made.append(env_id), config)
    assert made == ids
