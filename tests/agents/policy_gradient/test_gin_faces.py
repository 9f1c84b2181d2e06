"""The shared parts that gin configures under the on-policy agent's names."""

import gin
import pytest

from seed_rl.agents.policy_gradient.modules import (
    advantages,
    constraints,
    input_normalization,
    popart,
    running_statistics,
)
from seed_rl.common.learner import coefficients
from seed_rl.common.normalization import running_statistics as common_statistics
from seed_rl.common.returns import advantages as common_advantages


@gin.configurable
def part_under_test(part):
    return part


@pytest.fixture(autouse=True)
def unconfigured():
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.mark.parametrize(
    "name, options, face, home",
    [
        ("GAE", {"lambda_": 0.9}, advantages.GAE, common_advantages.AdvantageEstimator),
        (
            "VTrace",
            {"lambda_": 0.9, "max_importance_weight": 1.3},
            advantages.VTrace,
            common_advantages.VTrace,
        ),
        ("NStep", {"n": 7}, advantages.NStep, common_advantages.NStep),
        ("FixedCoefficient", {"value": 0.3}, constraints.FixedCoefficient, constraints.Coefficient),
        (
            "LagrangeInequalityCoefficient",
            {"threshold": 0.3},
            constraints.LagrangeInequalityCoefficient,
            coefficients.LagrangeInequalityCoefficient,
        ),
    ],
)
def test_gin_configures_a_part_by_its_bare_name(name, options, face, home):
    """`@GAE()` must be unambiguous, and be what type checks in the rest of the code expect."""
    lines = [f"part_under_test.part = @{name}()"]
    lines += [f"{name}.{option} = {value}" for option, value in options.items()]
    gin.parse_config(lines)
    part = part_under_test()
    assert isinstance(part, face) and isinstance(part, home)
    assert {option: getattr(part, option) for option in options} == options
    # A program may also create it in Python.
    assert getattr(face(), next(iter(options))) == next(iter(options.values()))


def test_normalization_is_configured():
    """Parts within parts, as in configurations of the agent."""
    gin.parse_config(
        """
        part_under_test.part = @PopArt()
        PopArt.mean_std_tracker = @EMAMeanStd()
        PopArt.compensate = False
        EMAMeanStd.beta = 1.0
        InputNormalization.mean_std_tracker = @FixedMeanStd()
        FixedMeanStd.mean = 2.0
        TwoLevelAverageMeanStd.buffer_size = 3
        AverageMeanStd.std_min_value = 0.5
        """
    )
    normalizer = part_under_test()
    assert isinstance(normalizer, popart.PopArt)
    normalizer.init()
    normalizer.update_normalization_statistics([1.0, 3.0])
    assert float(normalizer.normalize_target(3.0)) == pytest.approx(1.0)
    assert float(normalizer.scale) == 1.0
    inputs = input_normalization.InputNormalization()
    inputs.init_normalization_stats(1)
    assert float(inputs.normalize([5.0])[0]) == 3.0
    average = running_statistics.AverageMeanStd()
    average.init(1)
    average.update([[4.0]])
    assert float(average.get_mean_std()[1][0]) == 0.5
    for name in ("AverageMeanStd", "EMAMeanStd", "FixedMeanStd", "TwoLevelAverageMeanStd"):
        tracker = getattr(running_statistics, name)()
        assert isinstance(tracker, common_statistics.MeanStd)
        assert running_statistics.MeanStd is common_statistics.MeanStd
