"""Runs the real study over `study_launcher.py`, whose learners only pretend, as evaluations do.

study_program.py SPEC.json [--flag=value ...]
"""

import functools
import pathlib
import sys

from seed_rl.study import directory, program, runner

# Plays one episode more each time, so that a first evaluation may end with too few.
EVALUATION = """
import json, pathlib, sys
path, actions = pathlib.Path(sys.argv[1]), sys.argv[2]
record = json.loads(path.read_text()) if path.exists() else {}
played = record["episodes"] if record.get("actions") == actions else []
played.append({"score": 7.0 + len(played)})
path.write_text(json.dumps({"actions": actions, "episodes": played}))
"""
LAUNCHER = (sys.executable, str(pathlib.Path(__file__).with_name("study_launcher.py")))


def evaluation(study: directory.Study, run: directory.StudyRun) -> list[str]:
    file, actions = run.logdir / directory.EVALUATION, study.spec.evaluation_actions
    return [sys.executable, "-c", EVALUATION, str(file), actions]


def main() -> int:
    runner.check = lambda study, say: None  # The pretended flags are no flags of the program.
    runner.evaluation = evaluation
    runner.Runner = functools.partial(runner.Runner, launcher=LAUNCHER)
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
