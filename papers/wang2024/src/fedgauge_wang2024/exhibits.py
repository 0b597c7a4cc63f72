"""All tables and figures of the paper, the quickest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError
from fedgauge.base.types import Progress
from fedgauge.planning.plan import Plan
from fedgauge.show import files
from fedgauge.show.results.reading import kind_of
from fedgauge.simulation.experiment.sweep import SweepResult
from fedgauge.simulation.options import Compute
from fedgauge_wang2024 import lens_orders, sampling, sketch, table1, table2, training_curves
from fedgauge_wang2024.earlier import read_earlier
from fedgauge_wang2024.ledger import places
from fedgauge_wang2024.results import CurvesFigure, Table1
from fedgauge_wang2024.studies import FIGURES, Scale, study


class Exhibit(NamedTuple):
    """A table or figure.

    Attributes:
        name: the name of its directory among the results.
        picture: the name of its picture, without the suffix.
        module: the module that draws it.
        run: a function of (scale, directory of results, directory of data, compute, progress); ``None`` if interrupted.
    """

    name: str
    picture: str
    module: Any
    run: Callable[[Scale, Path, str | None, Compute, Progress], dict[str, Any] | None]


def _exact(
    module: Any, scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress
) -> dict[str, Any]:
    made: dict[str, Any] = module.run()
    return made


def _table2(scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress) -> dict[str, Any]:
    problems = 1 if scale == "smoke" else 12
    return table2.run(problems, 0, keep=out / "table2" / "cells", progress=progress, compute=compute)


def _table1(
    name: str, scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress
) -> dict[str, Any]:
    def tell(what: str, done: int, total: int | None) -> None:
        progress(f"table 1, {name}: {what}", done, total)

    place = out / _of_model(name)
    earlier = read_earlier(place, Table1)
    return table1.run(study(name), scale, None, data, place / "cells", tell, compute, earlier=earlier)


def _curves(
    name: str, scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress
) -> dict[str, Any] | None:
    earlier = read_earlier(out / name, CurvesFigure)
    return training_curves.run(
        name, scale, out / "runs", data=data, progress=progress, compute=compute, earlier=earlier
    )


def _of_model(name: str) -> str:
    return "table1" if name == "mlp" else f"table1-{name}"


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit("fig1", "fig1", sketch, partial(_exact, sketch)),
    Exhibit("sampling", "sampling", sampling, partial(_exact, sampling)),
    Exhibit("table2", "table2", table2, _table2),
    *(Exhibit(_of_model(name), "table1", table1, partial(_table1, name)) for name in table1.PAPER),
    *(Exhibit(name, name, training_curves, partial(_curves, name)) for name in FIGURES),
)


def draw_stored(results: Path) -> Iterator[Path]:
    """Draw the pictures of the results in a directory from their JSON files.

    These are the paper's tables and figures, the study of lenses, and every sweep and plan in a directory of its own.

    Yields:
        The pictures that were drawn.
    """
    exhibits = {results / place / "result.json": each for each in EXHIBITS for place in places(each.name)}
    found = (*exhibits, results / "lenses.json", *sorted(results.glob("*/result.json")), *results.glob("*/plan.json"))
    for path in dict.fromkeys(path for path in found if path.exists()):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if path in exhibits:
                yield _picture(exhibits[path].module, data, path.parent / f"{exhibits[path].picture}.png")
            elif path.name == "lenses.json":
                yield _picture(lens_orders, data, results / "lenses.png")
            elif kind_of(data) is SweepResult:
                yield from files.draw_sweep(SweepResult.from_json(data), path.parent)
            elif kind_of(data) is Plan:
                yield from files.draw_plan(Plan.from_json(data), path.parent)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise InputError(f"{path} is damaged, or another version wrote it; write it again.") from None


def _picture(module: Any, data: dict[str, Any], path: Path) -> Path:
    module.draw(data, path)
    return path
