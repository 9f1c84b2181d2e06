"""Statistics updated on several replicas are those of the whole batch, the same everywhere."""

import json

import numpy as np
import pytest

from tests.helpers.programs.normalization_program import BETA, make_batches


def expected_ema(batches):
    """Of first and second moments, in float64."""
    first, second = np.zeros(batches.shape[-1]), np.ones(batches.shape[-1])
    for batch in batches:
        for i, column in enumerate(batch.T):
            column = column[np.isfinite(column)]
            if len(column):
                first[i] += BETA * (column.mean() - first[i])
                second[i] += BETA * (np.square(column).mean() - second[i])
    return np.stack([first, np.sqrt(second - first**2)])


def expected_average(batches):
    columns = [c[np.isfinite(c)] for c in batches.reshape(-1, batches.shape[-1]).T]
    return np.stack([[c.mean() for c in columns], [c.std() for c in columns]])


@pytest.mark.slow
def test_equal_numpy_on_every_replica_and_in_copies(forks, repository):
    """Guards merging, columns with an offset, a constant and gaps, and non-trainable variables of
    networks on inference devices.
    """
    module = "tests.helpers.programs.normalization_program"
    result = forks.run("-m", module, "2", cwd=repository)
    assert result.returncode == 0, result.stderr
    values = json.loads(result.stdout.splitlines()[-1])
    copy = values.pop("copy")
    for name, value in values.items():
        assert len(value) == 2 and value[0] == value[1], name
        np.testing.assert_array_equal(copy[name], value[0], err_msg=name)
    batches = make_batches().astype(np.float64)
    average = expected_average(batches)
    bounded = np.maximum(average, [[-np.inf], [1e-6]])
    for name in ("average", "two_level"):
        np.testing.assert_allclose(values[name][0], bounded, rtol=1e-3, atol=1e-7, err_msg=name)
    np.testing.assert_allclose(values["normalizer"][0], average, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(values["ema"][0], expected_ema(batches), rtol=1e-4)
    finite = np.isfinite(batches).sum((0, 1))
    np.testing.assert_array_equal(values["count"][0], finite)
    # Outputs are preserved: 1.5 as before the first update.
    np.testing.assert_allclose(values["popart"][0], [1.5], rtol=1e-5)
    np.testing.assert_allclose(values["inputs"][0], [1.5] * 4, atol=0.02)
