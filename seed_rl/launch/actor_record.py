"""An actor of a run: its process, its crashes, how long it has been silent."""

from __future__ import annotations

from collections.abc import Mapping

from seed_rl.common.errors import UserError
from seed_rl.launch.process import Process
from seed_rl.launch.restarts import CrashRecord, RestartPolicy

_MAX_USER_ERRORS = 2  # A rare state of a working environment may cause a single one.


class SupervisedActor:
    """An actor process and its crash record.

    Args:
      process: the actor's process.
      env_ids: ids of its environments.
      policy: when it is restarted; it is given up after two `UserError` exits in a row.
    """

    def __init__(self, process: Process, env_ids: range, policy: RestartPolicy):
        self.process = process
        self.start_at: float | None = 0.0  # None: it is running.
        self._env_ids = env_ids
        self._policy = policy
        self._record = CrashRecord(policy)
        self._user_errors = 0  # In a row.
        self._worked = False

    def crashed(self, code: int, trains: bool) -> float:
        """Records an exit during the run, which counts as a crash whatever its code.

        Args:
          code: the exit code.
          trains: whether the learner trains; before that, actors only wait, so a long life proves
            nothing.

        Returns:
          The pause in seconds before the next start.
        """
        healthy = self._record.crashed(self.process.lifetime_s)
        self._worked |= healthy and trains
        if healthy:
            self._user_errors = 0
        user_error = code == UserError.exit_code
        self._user_errors = self._user_errors + 1 if user_error else 0
        return self._record.pause_s

    @property
    def cannot_start(self) -> bool:
        """Whether it exited with a `UserError` and has never worked: it would do so again."""
        return self._user_errors > 0 and not self._worked

    @property
    def hopeless(self) -> bool:
        """Whether it has crashed too often and too quickly for another restart to help."""
        failed = self._record.given_up or self._user_errors >= _MAX_USER_ERRORS
        recovered = self.process.running and self.process.lifetime_s >= self._policy.healthy_s
        return failed and not recovered

    def silence_s(self, silent_envs: Mapping[int, float]) -> float:
        """Seconds since the learner last heard from any of its environments; 0 if it did recently.

        Args:
          silent_envs: silent seconds by environment id, see `Progress.silent_envs`.
        """
        if not self.process.running or not all(i in silent_envs for i in self._env_ids):
            return 0.0
        silence_s = min(silent_envs[i] for i in self._env_ids)
        return min(silence_s, self.process.lifetime_s)  # Earlier silence is its predecessor's.
