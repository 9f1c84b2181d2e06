"""Your own code in a run: a note of each report and checkpoint, and an end when it is good enough.

./run_local.sh examples/callback.py vtrace 2 8 --env_name=CartPole-v1
"""

from __future__ import annotations

from pathlib import Path

from seed_rl.common.callbacks import Callback, Report
from seed_rl.gym import agents, vtrace_main


class Notes(Callback):
    """Writes LOGDIR/notes.txt; ends the run when CartPole stays upright."""

    def on_start(self) -> None:
        self._file = (self.run.logdir / "notes.txt").open("a", encoding="utf-8")

    def on_report(self, report: Report) -> None:
        loss = report.metrics.get("charts/loss")
        print(report.frames, loss, report.returns.size, report.mean_return, file=self._file)
        if report.mean_return is not None and report.mean_return >= 450:
            self.run.stop("CartPole stays upright")

    def on_save(self, path: Path) -> None:
        print("saved", path.name, file=self._file)

    def on_end(self, phase: str) -> None:
        print(phase, file=self._file)
        self._file.close()


if __name__ == "__main__":
    agents.main(vtrace_main.FAMILY, callbacks=[Notes()])
