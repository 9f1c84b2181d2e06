"""An actor of a run: its process, its crashes, how long it has been silent."""

from __future__ import annotations

from collections.abc import Mapping

from seed_rl.common.errors import UserError
from seed_rl.launch.process import Process

_MAX_USER_ERRORS = 2  # One may come from a rare state of a working actor's environment.


class Actor:
    """An actor process and its crash record.

    Args:
      process: the actor's process.
      env_ids: ids of its environments.
      healthy_s: running this long clears the crash record.
      max_failures: crashes in a row before the actor is given up; two `UserError` exits in a row
        suffice.
    """

    def __init__(self, process: Process, env_ids: range, healthy_s: float, max_failures: int):
        self.process = process
        self.failures = 0  # In a row, without a healthy run in between.
        self.start_at: float | None = 0.0  # None: it is running.
        self._env_ids = env_ids
        self._healthy_s = healthy_s
        self._max_failures = max_failures
        self._user_errors = 0  # In a row.
        self._worked = False

    def crashed(self, code: int, trains: bool) -> None:
        """Records an exit during the run, which counts as a crash whatever its code.

        Args:
          code: the exit code.
          trains: whether the learner trains; before that, actors only wait, so a long life proves
            nothing.
        """
        self._worked |= self._healthy and trains
        if self._healthy:
            self.failures = self._user_errors = 0
        self.failures += 1
        user_error = code == UserError.exit_code
        self._user_errors = self._user_errors + 1 if user_error else 0

    @property
    def cannot_start(self) -> bool:
        """Whether it exited with a `UserError` and has never worked: it would do so again."""
        return self._user_errors > 0 and not self._worked

    @property
    def hopeless(self) -> bool:
        """Whether it has crashed too often and too quickly for another restart to help."""
        failed = self.failures >= self._max_failures
        failed |= self._user_errors >= _MAX_USER_ERRORS
        return failed and not (self.process.running and self._healthy)

    def silence_s(self, silent_envs: Mapping[int, float]) -> float:
        """Seconds since the learner last heard from any of its environments; 0 if it did recently.

        Args:
          silent_envs: silent seconds by environment id, see `Progress.silent_envs`.
        """
        if not self.process.running or not all(i in silent_envs for i in self._env_ids):
            return 0.0
        silence_s = min(silent_envs[i] for i in self._env_ids)
        return min(silence_s, self.process.lifetime_s)  # Earlier silence is its predecessor's.

    @property
    def _healthy(self) -> bool:
        return self.process.lifetime_s >= self._healthy_s
