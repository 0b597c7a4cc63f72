"""All tables and figures of the paper, the quickest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.show.results.reading import kind_of
from fedgauge.simulation.options import HERE, Compute
from fedgauge_planning.files import draw_plan, draw_sweep
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.sweep import SweepResult
from fedgauge_wang2024 import lens_orders, sampling, sketch, table1, table2, training_curves
from fedgauge_wang2024.earlier import known_runs, read_earlier
from fedgauge_wang2024.places import kept, place_of, places
from fedgauge_wang2024.results import CurvesFigure, Table1
from fedgauge_wang2024.studies import CURVES, FIGURES, SCALES, Scale, study
from fedgauge_wang2024.training_curves import ALL, CurvePart


@dataclass(frozen=True)
class Request:
    """What is asked of a table or figure; it takes what it has a use for.

    Attributes:
        results: the directory of all results.
        effort: how much to compute.
        data: directory of data.
        compute: where the work is done, and how many processes at once.
        progress: called with what is done, how far it is and how far it goes.
        part: which panels or rows, and with how many seeds.
        seed: the first one.
        runs: directory of runs that figures share; by default one in the directory of results.
    """

    results: Path
    effort: Scale = "laptop"
    data: str | None = None
    compute: Compute = HERE
    progress: Progress = silent
    part: CurvePart = ALL
    seed: int = 0
    runs: Path | None = None


class Exhibit(NamedTuple):
    """A table or figure.

    Attributes:
        name: of its result.
        picture: the name of its picture, without the suffix.
        module: the module that draws and shows it.
        run: a function of what is asked and of the result's directory; it gives ``None`` if it was interrupted.
        efforts: those that give a result of their own.
    """

    name: str
    picture: str
    module: Any
    run: Callable[[Request, Path], dict[str, Any] | None]
    efforts: tuple[Scale, ...] = SCALES

    def place(self, asked: Request) -> Path:
        """The directory of the result."""
        return place_of(asked.results, self.name, asked.effort if asked.effort in self.efforts else None)


def _exact(module: Any, asked: Request, place: Path) -> dict[str, Any]:
    made: dict[str, Any] = module.run()
    return made


def _table2(asked: Request, place: Path) -> dict[str, Any]:
    problems = asked.part.seeds or (1 if asked.effort == "smoke" else 12)
    return table2.run(problems, asked.seed, keep=place / "cells", progress=asked.progress, compute=asked.compute)


def _table1(name: str, asked: Request, place: Path) -> dict[str, Any]:
    def tell(what: str, done: int, total: int | None) -> None:
        asked.progress(f"table 1, {name}: {what}", done, total)

    part, earlier = asked.part, earlier_table(asked.results, name, asked.effort)
    return table1.run(
        study(name),
        asked.effort,
        part.seeds,
        asked.data,
        place / "cells",
        tell,
        asked.compute,
        part.percents,
        earlier,
    )


def earlier_curves(results: Path, name: str, effort: Scale) -> dict[str, Any] | None:
    """The runs that the results have of the networks in a figure: its own, and those of figures that share them.

    A network that has one size at several efforts has the same runs at each.
    """
    found: dict[str, Any] = {}
    for key in dict.fromkeys(panel.study for panel in CURVES[name]):
        whole = study(key).experiment(effort).to_json()
        names = [other for other, panels in CURVES.items() if key in {panel.study for panel in panels}]
        for each in sorted(names, key=lambda other: other != name):
            for place in _kept_at(results, each, effort):
                made = read_earlier(place, CurvesFigure)
                if made and known_runs(made, key, whole):
                    found.setdefault(key, made["studies"][key])
    return {"scale": effort, "studies": found} if found else None


def earlier_table(results: Path, model: str, effort: Scale) -> dict[str, Any] | None:
    """The Table 1 of a network that the results have: at this effort, or else at another, which may have its cells."""
    made = (read_earlier(place, Table1) for place in _kept_at(results, table1_of(model), effort))
    return next((result for result in made if result), None)


def _kept_at(results: Path, name: str, effort: Scale) -> list[Path]:
    """The places that hold a result, that of an effort first."""
    own = place_of(results, name, effort)
    return sorted((place for place, _ in kept(results, name)), key=lambda place: place != own)


def _curves(name: str, asked: Request, place: Path) -> dict[str, Any] | None:
    earlier = earlier_curves(asked.results, name, asked.effort)
    return training_curves.run(
        name,
        asked.effort,
        asked.runs or asked.results / "runs",
        asked.part,
        data=asked.data,
        progress=asked.progress,
        compute=asked.compute,
        earlier=earlier,
    )


def table1_of(model: str) -> str:
    """The name of a model's Table 1.

    >>> table1_of("mlp"), table1_of("cnn")
    ('table1', 'table1-cnn')
    """
    return "table1" if model == "mlp" else f"table1-{model}"


def _figure(name: str) -> Exhibit:
    return Exhibit(name, name, training_curves, partial(_curves, name))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit("fig1", "fig1", sketch, partial(_exact, sketch), ()),
    Exhibit("sampling", "sampling", sampling, partial(_exact, sampling), ()),
    Exhibit("table2", "table2", table2, _table2, ("smoke",)),
    *(Exhibit(table1_of(name), "table1", table1, partial(_table1, name)) for name in table1.PAPER),
    *(_figure(name) for name in FIGURES),
)
LINEAR = _figure("linear")
"""What the paper names among its experiments and has no figure of."""


def find(name: str) -> Exhibit:
    """The table or figure of that name.

    >>> find("table2").efforts
    ('smoke',)
    """
    return next(each for each in (*EXHIBITS, LINEAR) if each.name == name)


def draw_stored(results: Path) -> Iterator[Path]:
    """Draw the pictures of the results in a directory from their JSON files.

    These are the paper's tables and figures, the study of lenses, and every sweep and plan in a directory of its own.

    Yields:
        The pictures that were drawn.
    """
    exhibits = {results / place / "result.json": each for each in (*EXHIBITS, LINEAR) for place in places(each.name)}
    found = (*exhibits, results / "lenses.json", *sorted(results.glob("*/result.json")), *results.glob("*/plan.json"))
    for path in dict.fromkeys(path for path in found if path.exists()):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if path in exhibits:
                yield _picture(exhibits[path].module, data, path.parent / f"{exhibits[path].picture}.png")
            elif path.name == "lenses.json":
                yield _picture(lens_orders, data, results / "lenses.png")
            elif kind_of(data) is SweepResult:
                yield from draw_sweep(SweepResult.from_json(data), path.parent)
            elif kind_of(data) is Plan:
                yield from draw_plan(Plan.from_json(data), path.parent)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise InputError(f"{path} is damaged, or another version wrote it; write it again.") from None


def _picture(module: Any, data: dict[str, Any], path: Path) -> Path:
    module.draw(data, path)
    return path
