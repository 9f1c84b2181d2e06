"""An actor of a run: its process, its crashes, its silence."""

from __future__ import annotations

from collections.abc import Mapping

from seed_rl.common.errors import UserError
from seed_rl.launch.process import Process

_MAX_USER_ERRORS = 2  # Once may be bad luck, such as a learner that just left.


class Actor:
    """An actor process and its record.

    Args:
      process: of the actor.
      env_ids: of its environments.
      healthy_s: one that ran this long before it crashed starts again with a clean record.
      max_failures: so many crashes in a row are too many; so are two with an error that is the
        user's to mend.
    """

    def __init__(self, process: Process, env_ids: range, healthy_s: float, max_failures: int):
        self.process = process
        self.failures = 0  # In a row, without a healthy life between them.
        self.restart_at: float | None = None
        self._env_ids = env_ids
        self._healthy_s = healthy_s
        self._max_failures = max_failures
        self._user_errors = 0  # In a row.

    def crashed(self, code: int) -> None:
        """Notes that it ended, which it never should by itself, whatever its exit code."""
        if self._healthy:
            self.failures = self._user_errors = 0
        self.failures += 1
        user_error = code == UserError.exit_code
        self._user_errors = self._user_errors + 1 if user_error else 0

    @property
    def hopeless(self) -> bool:
        """Whether its last lives were too many and too short to expect better of the next."""
        failed = self.failures >= self._max_failures
        failed |= self._user_errors >= _MAX_USER_ERRORS
        return failed and not (self.process.running and self._healthy)

    def silence_s(self, silent_envs: Mapping[int, float]) -> float:
        """How long the learner has not heard of any of its environments; 0 if it has lately.

        Args:
          silent_envs: seconds by environment, see `Progress.silent_envs`.
        """
        if not self.process.running or not all(i in silent_envs for i in self._env_ids):
            return 0.0
        silence_s = min(silent_envs[i] for i in self._env_ids)
        return min(silence_s, self.process.lifetime_s)  # What came before was another process.

    @property
    def _healthy(self) -> bool:
        return self.process.lifetime_s >= self._healthy_s
