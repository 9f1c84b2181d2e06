"""Sampling: deterministic, within the ranges, conditional."""

import math

import hypothesis
import hypothesis.strategies as st
import optuna
import pytest

from seed_rl.study import sampling, trials
from seed_rl.study import spec as spec_lib


@pytest.fixture
def spec(spec_json):
    return spec_lib.from_json(spec_json)


def test_the_same_spec_gives_the_same_configurations(spec, change):
    """Guards resuming: with more configurations, the first ones stay as they are."""
    configurations = trials.preview(spec)
    assert trials.preview(spec) == configurations
    more = trials.preview(spec_lib.from_json(change(60, "configurations")))
    assert len(more) == 60 and more[:40] == configurations
    other = trials.preview(spec_lib.from_json(change(8, "sampling_seed")))
    assert other[:40] != configurations


def test_conditional_choices_exist_only_then(spec):
    configurations = trials.preview(spec)
    advantages = [c.values["advantage"] for c in configurations]
    assert 10 < advantages.count("@GAE()") < 30
    for configuration in configurations:
        with_gae = configuration.values["advantage"] == "@GAE()"
        assert ("gae_lambda" in configuration.values) == with_gae


def test_values_that_are_equal_in_python_stay_apart(change):
    """Guards 1, 1.0 and true, which gin and flags tell apart and Optuna would not."""
    listed = [1, 1.0, True, "1"]
    spec = spec_lib.from_json(change({"values": listed}, "choices", "x"))
    drawn = [c.values["x"] for c in trials.preview(spec)]
    assert {(type(value), value) for value in drawn} == {(type(value), value) for value in listed}


def test_flags_of_a_run(spec):
    values = {"learning_rate": 0.001, "advantage": "@GAE()", "gae_lambda": 0.9}
    configuration = sampling.Configuration(0, values)
    assert sampling.flags(spec, configuration, seed=2) == [
        *("--env_name=CartPole-v1", "--grad_check=true", "--repeated=1", "--repeated=2"),
        *("--learning_rate=0.001", "--total_environment_frames=1000", "--seed=2"),
        "--gin_bindings=GAE.normalize = False",
        "--gin_bindings=Loss.advantage_estimator = @GAE()",
        "--gin_bindings=GAE.lambda_ = 0.9",
    ]


def test_covering_shows_every_value_once(spec):
    configurations = trials.preview(spec)
    chosen = sampling.covering(spec, configurations)
    assert {c.values["advantage"] for c in chosen} == {"@GAE()", "@NStep()"}
    assert len(chosen) == 2 and any("gae_lambda" in c.values for c in chosen)


bounds = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).filter(lambda b: b[0] < b[1])


@hypothesis.settings(deadline=None)  # The machine may be busy.
@hypothesis.given(bounds, st.sampled_from(["uniform", "log_uniform"]), st.floats(0, 1))
def test_samples_stay_within_ranges(bounds, kind, u):
    """Guards the rounding of samples, which must not leave the range."""
    low, high = bounds
    trial = optuna.trial.FixedTrial({"x": min(low + u * (high - low), high)})
    assert low <= sampling.draw(spec_of({kind: bounds}), trial)["x"] <= high


def spec_of(choice, configurations=2000):
    choice = {kind: list(domain) for kind, domain in choice.items()}
    values = {"game": "gym", "agent": "vtrace", "frames": 1, "choices": {"x": choice}}
    return spec_lib.from_json({**values, "configurations": configurations})


def test_log_uniform_samples():
    """A quarter of them in each quarter of the distribution."""
    samples = [c.values["x"] for c in trials.preview(spec_of({"log_uniform": [1e-4, 1]}))]
    edges = [10 ** (k - 4) for k in range(5)]
    for low, high in zip(edges, edges[1:], strict=False):
        share = sum(low <= sample <= high for sample in samples) / len(samples)
        assert math.isclose(share, 0.25, abs_tol=0.04)


def test_integers_include_both_ends():
    samples = [c.values["x"] for c in trials.preview(spec_of({"integers": [3, 6]}, 60))]
    assert set(samples) == {3, 4, 5, 6}
