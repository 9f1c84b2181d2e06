"""The documented interface of DeepMind Lab, without its worlds.

What the engine refuses is refused here, with the same exceptions. Where the engine ends the process
or reads wrong memory, `EngineCrash` is raised, which no `except Exception` catches.

Episodes depend on level, seeds, episode number and actions, and as in the engine on whether they
are the first of their Lab. `laps` is a level with one more action.
"""

from __future__ import annotations

import os
import tempfile
import zlib

import numpy as np

_NAMES = (
    "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME",
    "LOOK_DOWN_UP_PIXELS_PER_FRAME",
    "STRAFE_LEFT_RIGHT",
    "MOVE_BACK_FORWARD",
    "FIRE",
    "JUMP",
    "CROUCH",
)
_LOWEST = (-512, -512, -1, -1, 0, 0, 0)
_SETTINGS = {
    *("width", "height", "fps", "levelDirectory", "appendCommand", "mixerSeed"),
    *("episodeLengthSeconds", "allowHoldOutLevels", "logLevel", "datasetPath"),
}
_OTHER_LEVELS = ("laps", "tests/empty_room_test")
_DMLAB30 = "contributed/dmlab30/"
_KINDS = ("rooms", "language", "lasertag", "natlab", "skymaze", "psychlab", "explore")
_SECONDS = "1"
_NO_SETTINGS: dict[str, str] = {}

runfiles_path = ""


class EngineCrash(BaseException):
    """The engine would have ended the process."""


def set_runfiles_path(path):
    global runfiles_path
    runfiles_path = path


class Lab:
    def __init__(
        self,
        level,
        observations,
        config=_NO_SETTINGS,
        renderer="software",
        level_cache=None,
        temp_folder="",
    ):
        if not isinstance(level, str) or not isinstance(renderer, str):
            raise TypeError("level and renderer must be str")
        if not isinstance(observations, list) or not isinstance(config, dict):
            raise TypeError("observations must be a list and config a dict")
        if not all(isinstance(text, str) for pair in config.items() for text in pair):
            raise TypeError("keys and values of config must be str")
        if unknown := set(observations) - {"RGB_INTERLEAVED", "INSTR"}:
            raise ValueError(f"Unknown observation {unknown.pop()}")
        name = level.removeprefix(_DMLAB30)
        known = name != level and name.partition("_")[0] in _KINDS and "unknown" not in name
        if not known and level not in _OTHER_LEVELS:
            raise RuntimeError(f"Level not found: {level}")
        if unknown := set(config) - _SETTINGS:
            raise RuntimeError(f"Invalid setting {unknown.pop()}")
        if name.endswith("_test") and config.get("allowHoldOutLevels") != "true":
            raise RuntimeError("[[levels/hold_out.lua]]: level is held out")
        if renderer not in ("software", "hardware"):
            raise RuntimeError(f"Unknown renderer {renderer}")
        self._shape = int(config.get("height", "240")), int(config.get("width", "320")), 3
        if self._shape[0] % 4 or self._shape[1] % 4:
            raise RuntimeError("width and height must be multiples of 4")
        fps = int(config.get("fps", "60"))
        self._length = int(float(config.get("episodeLengthSeconds", _SECONDS)) * fps)
        self.level, self.config = level, dict(config)
        self._observations, self._cache = list(observations), level_cache
        self._running = self._closed = self._started = False
        self._episode = -1
        self._frames = 0
        self.actions = []

    def action_spec(self):
        names = (*_NAMES, "DRIFT") if self.level == "laps" else _NAMES
        lowest = (*_LOWEST, 0)
        return [
            {"name": name, "min": low, "max": -low if low else 1}
            for name, low in zip(names, lowest, strict=False)
        ]

    def reset(self, episode=-1, seed=None):
        if self._closed:
            raise EngineCrash("reset after close")
        for number in (episode, seed):
            if number is not None and type(number) is not int:
                raise ValueError("episode and seed must be int")
        self._episode = self._episode + 1 if episode < 0 else episode
        seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self._load_map(seed)
        mixer = int(self.config.get("mixerSeed", "0"))
        level = zlib.crc32(self.level.encode())
        self._random = np.random.default_rng([seed, self._episode, not self._started, mixer, level])
        self._started = self._running = True
        self._frames = 0
        self._frame = self._random.integers(256, size=self._shape, dtype=np.uint8)
        return True

    def is_running(self):
        return self._running

    def observations(self):
        self._require_running()
        instruction = "Pick up the red hat!" if "language" in self.level else ""
        values = {"RGB_INTERLEAVED": self._frame.copy(), "INSTR": instruction}
        return {name: values[name] for name in self._observations}

    def step(self, action, num_steps=1):
        self._require_running()
        if not isinstance(action, np.ndarray):
            raise TypeError("action must be an array")
        if action.dtype != np.intc or action.shape != (len(self.action_spec()),):
            raise ValueError("action must be an array of intc of the right shape")
        if not action.flags.c_contiguous:
            raise EngineCrash("strides are ignored: reads other memory")
        self.actions.append(action.copy())
        reward = 0.0
        for _ in range(num_steps):
            self._frames += 1
            if self._frames <= self._length:
                reward += float(self._random.integers(3)) + float(action[3] > 0)
        self._running = self._frames < self._length
        self._frame = np.roll(self._frame, 1 + int(action.sum()), axis=1)
        return reward

    def num_steps(self):
        return self._frames

    def close(self):
        self._closed = True
        self._running = False

    def _require_running(self):
        if not self._running:
            raise RuntimeError("Environment in wrong status for call: not running")

    def _load_map(self, seed):
        if self._cache is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            key, path = f"{zlib.crc32(self.level.encode()):x}_{seed}", f"{folder}/map.pk3"
            if self._cache.fetch(key, path):
                if not os.path.exists(path):
                    raise EngineCrash("the cache promised a map that is missing")
                with open(path) as file:
                    if file.read() != key:
                        raise EngineCrash("the cache has another map")
                return
            with open(path, "w") as file:
                file.write(key)
            self._cache.write(key, path)
