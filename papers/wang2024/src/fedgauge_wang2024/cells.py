"""The cells of a table, each kept when it is done, so that an interrupted command can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedgauge.base.codec import parse_json
from fedgauge.base.files import make_directories, read_file, write_json
from fedgauge.base.types import Progress
from fedgauge_planning.jobs import Pool

"""Called with the cell that is done, how many cells are done, and how many there are."""


class CellJob(NamedTuple):
    """One cell.

    Attributes:
        settings: everything that its result depends on, as JSON; a kept cell with other settings is computed again.
        arguments: of the function that computes it.
    """

    settings: Any
    arguments: tuple[Any, ...]


def run_cells(
    function: Callable[..., Any],
    jobs: Mapping[str, CellJob],
    keep: Path | None,
    pool: Pool,
    progress: Progress,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Compute every cell that is neither known nor kept, and return all cells by name, in the order of the jobs."""
    found = {name: known[name] for name in jobs if name in known}
    for name, job in jobs.items():
        if name not in found and (cell := kept(keep, name, job.settings)) is not None:
            found[name] = cell
    progress("starting", len(found), len(jobs))
    missing = {name: job.arguments for name, job in jobs.items() if name not in found}
    if missing:
        with pool as running:
            for name, cell in running.map(function, missing):
                found[name] = cell
                if keep:
                    make_directories(keep)
                    write_json(keep / f"{name}.json", {"asked": jobs[name].settings, "cell": cell})
                progress(name, len(found), len(jobs))
    return {name: found[name] for name in jobs}


def kept(keep: Path | None, name: str, settings: Any) -> Any:
    """A cell that was kept with the same settings; None where there is none that can be read."""
    if keep is None:
        return None
    try:
        held = parse_json(read_file(keep / f"{name}.json"))
        return held["cell"] if held["asked"] == json.loads(json.dumps(settings)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
