"""Run the study: every federation with every seed, each kept as a cell, so that an interrupted command is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import MOST_RUNS, InputError, count, nearest
from fedgauge.base.files import read_file
from fedgauge.base.progress import silent
from fedgauge.base.randomness import check_seed
from fedgauge.base.types import Progress
from fedgauge.simulation.options import HERE, Compute
from fedgauge_planning.jobs import make_pool
from fedgauge_wang2024.cells import CellJob, run_cells
from fedgauge_wang2024.decisive.answers import answers, grid_of
from fedgauge_wang2024.decisive.cell import measure_cell
from fedgauge_wang2024.decisive.federations import federations, source_of
from fedgauge_wang2024.decisive.regret import regrets
from fedgauge_wang2024.results import DecisiveStudy


def read_study(path: Path) -> dict[str, Any]:
    """A result of the study that is there."""
    try:
        return DecisiveStudy.from_json(parse_json(read_file(path))).to_json()
    except (OSError, ValueError, KeyError, TypeError, InputError):
        raise InputError(f"{path} is no result of 'fedgauge paper decisive'; name a file that it wrote.") from None


def run_study(
    source: str = "digits",
    data: str | None = None,
    seeds: int = 5,
    seed: int = 0,
    *,
    kinds: Sequence[str] = (),
    designed: bool = True,
    keep: Path | None = None,
    compute: Compute = HERE,
    progress: Progress = silent,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run every federation of a data set with every seed; all federations of one seed before those of the next.

    Args:
        source: one of :data:`~fedgauge_wang2024.decisive.federations.SOURCES`.
        data: the directory that holds the data sets.
        seeds: how many.
        seed: the first.
        kinds: only these kinds of heterogeneity; all of the source by default.
        designed: whether federations of equal zeta are among them.
        keep: directory of finished cells.
        compute: where the work is done, and how many processes at once.
        progress: called with the cell that is done, the number of cells done and of all cells.
        changes: settings that differ from the source's own.

    Returns:
        The settings, the answers, the regrets, and one cell per federation and seed, as JSON.
    """
    count("seeds", seeds, most=MOST_RUNS)
    check_seed(seed)
    chosen = source_of(source)
    for kind in kinds:
        if kind not in chosen.kinds:
            raise InputError(f"The study of {source} has no kind {kind!r}; {nearest(kind, chosen.kinds)}")
    settings = {**chosen.settings(), **(changes or {})}
    wanted = [
        each
        for each in federations(chosen)
        if (designed or each.zeta is None) and (not kinds or each.kind is None or each.kind in kinds)
    ]
    jobs = {
        f"{source}-{one.name.replace(' ', '-')}-{number}": CellJob(
            [one.to_json(), number, settings], (one.to_json(), number, data, settings)
        )
        for number in range(seed, seed + seeds)
        for one in wanted
    }
    cells = run_cells(measure_cell, jobs, keep, make_pool(compute), progress)
    described = {"source": source, "seeds": seeds, "seed": seed, "zeta": chosen.zeta, **settings}
    return concluded(described, list(cells.values()))


def concluded(settings: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The result of a study from its cells: answers and regrets, with numbers of six digits."""
    grid = grid_of(cells)
    parts = (answers(grid), regrets(grid, settings["cap"]), cells)
    found, costs, rounded = (_rounded(part) for part in parts)
    return DecisiveStudy(dict(settings), found, tuple(costs), tuple(rounded)).to_json()


def _rounded(data: Any) -> Any:
    """Plain data with floats of six significant digits: the seventh says nothing, and files stay small."""
    if isinstance(data, float):
        return float(f"{data:.6g}")
    if isinstance(data, Mapping):
        return {key: _rounded(item) for key, item in data.items()}
    return [_rounded(item) for item in data] if isinstance(data, list | tuple) else data
