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
from seed_rl.common.normalization import input_normalization as common_input_normalization
from seed_rl.common.normalization import popart as common_popart
from seed_rl.common.normalization import running_statistics as common_statistics
from seed_rl.common.returns import advantages as common_advantages


@gin.configurable
def part_under_test(part):
    return part


@pytest.mark.parametrize(
    ("face", "home"),
    [
        *((getattr(advantages, n), common_advantages) for n in ("GAE", "VTrace", "NStep")),
        (constraints.FixedCoefficient, coefficients),
        (constraints.LagrangeInequalityCoefficient, coefficients),
        (popart.PopArt, common_popart),
        (input_normalization.InputNormalization, common_input_normalization),
        (running_statistics.AverageMeanStd, common_statistics),
        (running_statistics.EMAMeanStd, common_statistics),
        (running_statistics.FixedMeanStd, common_statistics),
        (running_statistics.TwoLevelAverageMeanStd, common_statistics),
    ],
)
def test_a_bare_name_is_the_face(face, home):
    """`@GAE()` must be unambiguous, and be what type checks in the rest of the code expect."""
    gin.parse_config(f"part_under_test.part = @{face.__name__}")
    assert part_under_test() is face and issubclass(face, getattr(home, face.__name__))


def test_a_bound_parameter_reaches_a_face():
    """Faces have no constructors of their own: gin must wrap those of their homes."""
    gin.parse_config("part_under_test.part = @NStep()\nNStep.n = 7")
    part = part_under_test()
    assert part.n == 7 and isinstance(part, advantages.NStep)
    assert advantages.NStep().n == 7  # A program may also create it in Python.
