"""All tables and figures, in the order of the time that they take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.reproduce import sampling, sketch, table1, table2, training_curves
from fedgauge.reproduce.studies import FIGURES, Scale, study

Told = Callable[[str, int, int | None], None]


class Where(NamedTuple):
    """Where things are run: so many at once, here or on a cluster."""

    jobs: int | None = None
    engine: str | None = None
    address: str | None = None


class Part(NamedTuple):
    """A table or figure.

    Attributes:
        name: of its directory among the results.
        picture: of its picture, without the suffix.
        module: that draws it.
        run: of (scale, directory of results, directory of data, where, told); ``None`` where it was interrupted.
    """

    name: str
    picture: str
    module: Any
    run: Callable[[Scale, Path, str | None, Where, Told], dict[str, Any] | None]


def _exact(module: Any, scale: Scale, out: Path, data: str | None, where: Where, told: Told) -> dict[str, Any]:
    made: dict[str, Any] = module.run()
    return made


def _table2(scale: Scale, out: Path, data: str | None, where: Where, told: Told) -> dict[str, Any]:
    problems = 1 if scale == "smoke" else 12
    return table2.run(problems, 0, keep=out / "table2" / "cells", told=partial(told, "table 2"), **where._asdict())


def _table1(name: str, scale: Scale, out: Path, data: str | None, where: Where, told: Told) -> dict[str, Any]:
    def tell(what: str, done: int, total: int) -> None:
        told(f"table 1, {name}: {what}", done, total)

    return table1.run(
        study(name), scale, None, data, out / _of_model(name) / "cells", tell, where.engine, where.address
    )


def _curves(name: str, scale: Scale, out: Path, data: str | None, where: Where, told: Told) -> dict[str, Any] | None:
    return training_curves.run(name, scale, out / "runs", data=data, told=told, **where._asdict())


def _of_model(name: str) -> str:
    return "table1" if name == "mlp" else f"table1-{name}"


PARTS: tuple[Part, ...] = (
    Part("fig1", "fig1", sketch, partial(_exact, sketch)),
    Part("sampling", "sampling", sampling, partial(_exact, sampling)),
    Part("table2", "table2", table2, _table2),
    *(Part(_of_model(name), "table1", table1, partial(_table1, name)) for name in table1.PAPER),
    *(Part(name, name, training_curves, partial(_curves, name)) for name in FIGURES),
)
