"""Serving a trained agent: which episodes count."""

import numpy as np

from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.learner.policy_server import ServeRequest, _Score


def test_environments_that_nobody_steps_are_named(tmp_path):
    """Guards against waiting silently, for ever, for more environments than actors have."""
    score = _Score(ServeRequest("", str(tmp_path / "episodes"), episodes=100), 256)
    silence = np.full(256, np.nan)
    assert score.missing(silence) == ""  # No actor yet.
    silence[:8] = 0.0
    news = []
    for env_id in range(100):
        news.append(score.missing(silence))
        values = [np.array([value]) for value in (env_id, 1, 1.0, 1.0, 0.0, np.nan)]
        score.add(EpisodeStats(*values))
    assert news[:8] == [""] * 8
    assert "environments 8 to 99, which no actor steps" in news[8] and "--num_envs=8" in news[8]
    assert score.complete and score.missing(silence) == ""
