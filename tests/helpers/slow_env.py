"""A wrapper that makes training take as long on any machine."""

import time

import gymnasium

_STEP_S = 0.012


class Slow(gymnasium.Wrapper):
    """An environment whose steps take at least 12 ms."""

    def step(self, action):
        time.sleep(_STEP_S)
        return super().step(action)
