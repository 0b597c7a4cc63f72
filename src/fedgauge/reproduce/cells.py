"""The cells of a table, each kept when it is done, so that an interrupted command goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.experiment.jobs import Pool
from fedgauge.system.files import write_json

Told = Callable[[str, int, int], None]
"""Told which cell is done, how many are, and how many there are."""


class Job(NamedTuple):
    """One cell.

    Attributes:
        asked: all that its result depends on, as JSON: a kept cell that was asked something else is made anew.
        arguments: of the function that makes it.
    """

    asked: Any
    arguments: tuple[Any, ...]


def run_cells(
    function: Callable[..., Any], jobs: Mapping[str, Job], keep: Path | None, pool: Pool, told: Told
) -> dict[str, Any]:
    """Make every cell that is not kept yet; all of them by name, in the order of the jobs."""
    found = {name: cell for name, job in jobs.items() if (cell := _kept(keep, name, job.asked)) is not None}
    told("starting", len(found), len(jobs))
    missing = {name: job.arguments for name, job in jobs.items() if name not in found}
    if missing:
        with pool as running:
            for name, cell in running.map(function, missing):
                found[name] = cell
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    write_json(keep / f"{name}.json", {"asked": jobs[name].asked, "cell": cell})
                told(name, len(found), len(jobs))
    return {name: found[name] for name in jobs}


def _kept(keep: Path | None, name: str, asked: Any) -> Any:
    """A cell that is there already and was asked the same; one that cannot be read is no cell."""
    if keep is None:
        return None
    try:
        held = json.loads((keep / f"{name}.json").read_text())
        return held["cell"] if held["asked"] == json.loads(json.dumps(asked)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
