"""The program and options of a run, for TensorBoard's tabs Text and HParams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensorboard.plugins.hparams import summary_v2 as hparams_summary
from tensorboard.plugins.text import summary_v2 as text_summary

from seed_rl.common.run_files import run_record

TEXT_TAG = "options"


def summaries(record: Mapping[str, Any]) -> list[bytes]:
    """Serialized `Summary` protos for `tf.summary.experimental.write_raw_pb`.

    Args:
      record: all options by name, from `run_record.describe`.
    """
    protos = [
        text_summary.text_pb(TEXT_TAG, _markdown(record)),
        hparams_summary.hparams_pb(hyperparameters(record)),
    ]
    return [proto.SerializeToString() for proto in protos]


def hyperparameters(record: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """The options by which runs are compared: all but addresses, paths and process numbers.

    With gin, also the values of all parameters in effect.
    """
    options = {n: value for n, value in record.items() if n not in run_record.OWN_OPTIONS}
    values = {**options, **(record.get(run_record.GIN) or {})}
    return {name: _scalar(value) for name, value in values.items()}


def _markdown(record: Mapping[str, Any]) -> str:
    origins = record.get(run_record.ORIGINS, {})
    lines = ["| option | value | set by |", "| --- | --- | --- |"]
    for name, value in sorted(hyperparameters(record).items()):
        lines.append(f"| {name} | {_cell(value)} | {_cell(origins.get(name, ''))} |")
    program = record.get(run_record.PROGRAM)
    return "\n".join([f"    {program}\n", *lines] if program else lines)


def _scalar(value: Any) -> bool | float | str:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return ",".join(str(element) for element in value)
    return "" if value is None else json.dumps(value, default=str)


def _cell(value: bool | float | str) -> str:
    return str(value).replace("|", "\\|")
