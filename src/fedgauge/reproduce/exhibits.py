"""All tables and figures of the paper, the quickest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.errors import InputError
from fedgauge.reproduce import lens_orders, sampling, sketch, table1, table2, training_curves
from fedgauge.reproduce.studies import FIGURES, Scale, study
from fedgauge.simulation.options import Compute

Progress = Callable[[str, int, int | None], None]


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
    return table2.run(
        problems, 0, keep=out / "table2" / "cells", progress=partial(progress, "table 2"), compute=compute
    )


def _table1(
    name: str, scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress
) -> dict[str, Any]:
    def tell(what: str, done: int, total: int) -> None:
        progress(f"table 1, {name}: {what}", done, total)

    return table1.run(study(name), scale, None, data, out / _of_model(name) / "cells", tell, compute)


def _curves(
    name: str, scale: Scale, out: Path, data: str | None, compute: Compute, progress: Progress
) -> dict[str, Any] | None:
    return training_curves.run(name, scale, out / "runs", data=data, progress=progress, compute=compute)


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

    Yields:
        The pictures that were drawn.
    """
    stored = {results / exhibit.name / "result.json": (exhibit.module, exhibit.picture) for exhibit in EXHIBITS}
    for path, (module, picture) in {**stored, results / "lenses.json": (lens_orders, "lenses")}.items():
        if not path.exists():
            continue
        drawn = path.parent / f"{picture}.png"
        try:
            module.draw(json.loads(path.read_text(encoding="utf-8")), drawn)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise InputError(f"{path} is damaged, or another version wrote it; write it again.") from None
        yield drawn
