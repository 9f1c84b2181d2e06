"""A wrapper: `--env_wrappers=tests.helpers.odd_envs:NAME`."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium


class FilmedWithoutTensorFlow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Renders where TensorFlow is not imported, or not at all."""

    def render(self) -> Any:
        if "tensorflow" in sys.modules:
            raise RuntimeError("TensorFlow is in this process")
        return self.env.render()
