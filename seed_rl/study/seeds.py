"""`./run_local.sh ... --seeds=5`: a study whose only configuration runs with several seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from seed_rl.common.config import familiar_names
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring import plots
from seed_rl.launch import arguments, local
from seed_rl.launch.arguments import RunOptions
from seed_rl.study import directory
from seed_rl.study import spec as spec_lib
from seed_rl.study.directory import Study
from seed_rl.study.results import Result

FRAMES = "total_environment_frames"


def open_study(line: Sequence[str]) -> tuple[Study, int]:
    """The new or existing study of a command line, and how many runs it has at a time.

    Args:
      line: the arguments of `./run_local.sh`, with --seeds.

    Raises:
      UserError: the command line is wrong, or the directory has something else.
    """
    options = arguments.parse(line)
    path = options.logdir
    if path is None:
        # `fresh`: a single run with the default name must not contribute its options.
        single = local.ask_program(dataclasses.replace(options, fresh=True)).logdir
        assert single is not None
        path = single.with_name(f"{single.name}-seeds")
    asked = local.ask_program(dataclasses.replace(options, logdir=path), quiet=True)
    return directory.open_study(path, _spec(options, asked.frames)), options.at_once


def _spec(options: RunOptions, frames: int | None) -> spec_lib.Spec:
    flags: dict[str, list[str]] = {}
    for flag in options.flags:
        name, equals, value = flag.lstrip("-").partition("=")
        if not equals:
            raise UserError(f"With --seeds, write {flag} with its value: --name=true or =false.")
        flags.setdefault(name, []).append(value)
    for name in [name for name in flags if familiar_names.ours(name, (FRAMES,)) == FRAMES]:
        del flags[name]
    if frames is None:
        raise UserError(f"With --seeds, give the length of each run: --{FRAMES}=N.")
    values = {
        "game": options.game,
        "agent": options.agent,
        "actors": options.actors,
        "envs_per_actor": options.envs_per_actor,
        "frames": frames,
        "seeds": options.seeds,
        "sampler": "grid",
        "choices": {},
        "flags": {name: given if given[1:] else given[0] for name, given in flags.items()},
        "performance": {"measure": "final"},
    }
    return spec_lib.from_json(values, "the command line")


def report(study: Study, collected: Sequence[Result]) -> None:
    """Prints the results of the finished seeds, and draws their curves."""
    rated = [result for result in collected if result.cells["final_return"]]
    if not rated:
        return
    finals = [float(result.cells["final_return"]) for result in rated]
    each = ", ".join(f"{value:.4g}" for value in finals)
    print(f"Final mean return: {np.mean(finals):.4g} over {len(finals)} seeds ({each}).")
    places = [str(result.run.logdir) for result in rated if not result.run.record]
    if not places:
        return
    out = study.path / "curves.png"
    try:
        plots.draw_groups(plots.read_groups(places), out)
        print(f"Wrote {out}. Others beside it: seed-rl plot {study.path} RUN...")
    except UserError as error:
        print(f"No plot: {error}")
