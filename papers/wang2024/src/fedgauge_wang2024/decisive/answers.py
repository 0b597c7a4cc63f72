"""The answers of the study: orders within and over kinds, at equal zeta, given another lens, and by place.

Orders are Kendall's tau-b on medians over seeds for each federation. Intervals hold 95% of the values that drawing the
seeds of each federation again gives; differences between two lenses are taken within each draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge_wang2024.decisive.cell import PLACES
from fedgauge_wang2024.lens_orders import RESAMPLES, medians, taus

ALIKE = 1.1
"""The largest ratio of two zetas that count as equal."""
MAIN = ("40", "along", "zeta_rms", "L_h seen")
"""The comparison that was fixed beforehand: local steps, place, and the two lenses."""


class MeasureName(NamedTuple):
    """A lens at a place; the place is empty for what needs no model, and for the gauge."""

    name: str
    place: str = ""


@dataclass(frozen=True, eq=False)
class Grid:
    """The cells of a study as arrays with one row per federation and one column per seed.

    Attributes:
        names: of the federations.
        kinds: of each federation; None for the plain one.
        designed: which federations were made for equal zeta.
        reached: which of those have it, in most of their seeds.
        slowdowns: for every number of local steps; infinite where a run was given up.
        lenses: what each lens said; the gauge has one entry for every number of local steps.
    """

    names: tuple[str, ...]
    kinds: tuple[str | None, ...]
    designed: Any
    reached: Any
    slowdowns: Mapping[str, Floats]
    lenses: Mapping[MeasureName, Floats]

    @property
    def main(self) -> Any:
        """The numbers of the federations that were not made for equal zeta."""
        return np.flatnonzero(~self.designed)

    def seen(self, lens: MeasureName, local: str) -> Floats:
        """What a lens said; the gauge says something for every number of local steps."""
        return self.lenses[MeasureName(f"gauge {local}")] if lens.name == "gauge" else self.lenses[lens]

    @property
    def known(self) -> list[MeasureName]:
        """All lenses, the gauge once."""
        return [*(lens for lens in self.lenses if not lens.name.startswith("gauge")), MeasureName("gauge")]


def grid_of(cells: Sequence[Mapping[str, Any]]) -> Grid:
    """The cells as arrays; a lens that is missing in one cell is left out."""
    names = tuple(dict.fromkeys(cell["federation"] for cell in cells))
    rows = [[cell for cell in cells if cell["federation"] == name] for name in names]
    made = [row[0].get("designed") is not None for row in rows]
    reached = [
        is_made and np.mean([cell["designed"]["reached"] for cell in row]) > 0.5
        for is_made, row in zip(made, rows, strict=True)
    ]

    def table(read: Callable[[Mapping[str, Any]], float | None]) -> Floats:
        return np.array([[np.inf if (value := read(cell)) is None else value for cell in row] for row in rows])

    found: dict[MeasureName, Floats] = {}
    for place in PLACES:
        common = [lens for lens in cells[0]["lenses"][place] if all(lens in cell["lenses"][place] for cell in cells)]
        for lens in common:
            found[MeasureName(lens, place)] = table(lambda cell, lens=lens, place=place: cell["lenses"][place][lens])  # type: ignore[misc]
    for lens in cells[0]["labels"]:
        found[MeasureName(lens)] = table(lambda cell, lens=lens: cell["labels"][lens])  # type: ignore[misc]
    slowdowns = {}
    for local in cells[0]["slowdown"]:
        slowdowns[local] = table(lambda cell, local=local: cell["slowdown"][local])  # type: ignore[misc]
        found[MeasureName(f"gauge {local}")] = table(lambda cell, local=local: cell["gauge"][local])  # type: ignore[misc]
    kinds = tuple(row[0]["kind"] for row in rows)
    return Grid(names, kinds, np.array(made), np.array(reached), slowdowns, found)


class MeasureScore(NamedTuple):
    """A number with its interval; without an interval if there is one seed only, or nothing to compare."""

    value: float
    low: float | None
    high: float | None


class Sampled:
    """Medians over seeds: those of the study first, and then those of every draw of seeds."""

    def __init__(self, grid: Grid, seed: int = 0, draws: int = RESAMPLES) -> None:
        self.grid = grid
        shape = next(iter(grid.slowdowns.values())).shape
        self._several = shape[1] > 1
        chosen = Streams(seed, Purpose.SAMPLING).at().integers(shape[1], size=(draws if self._several else 0, *shape))
        self._chosen, self._rows = chosen, np.arange(shape[0])[:, None]
        self._known: dict[Any, Floats] = {}

    def lens(self, lens: MeasureName, local: str) -> Floats:
        """Medians of a lens: one row for each draw, one column per federation."""
        return self._medians(("lens", lens, local if lens.name == "gauge" else ""), self.grid.seen(lens, local))

    def harm(self, local: str) -> Floats:
        """Medians of the slowdown."""
        return self._medians(("harm", local), self.grid.slowdowns[local])

    def _medians(self, key: Any, values: Floats) -> Floats:
        if key not in self._known:
            self._known[key] = np.concatenate([medians(values)[None], medians(values[self._rows, self._chosen])])
        return self._known[key]

    def answer(self, values: Floats) -> MeasureScore:
        """The value of the study, with the interval that the draws give."""
        if not self._several:
            return MeasureScore(float(values[0]), None, None)
        low, high = np.percentile(values[1:], [2.5, 97.5])
        return MeasureScore(float(values[0]), float(low), float(high))


def mixed(sampled: Sampled, lens: MeasureName, local: str, among: Any | None = None) -> Floats:
    """Tau over federations of all kinds, for every draw."""
    chosen = sampled.grid.main if among is None else among
    return taus(sampled.lens(lens, local)[:, chosen], sampled.harm(local)[:, chosen])


def within(sampled: Sampled, lens: MeasureName, local: str) -> Floats:
    """Tau over the strengths of one kind and the plain federation, averaged over kinds, for every draw."""
    grid = sampled.grid
    plain = [number for number in grid.main if grid.kinds[number] is None]
    found = []
    for kind in dict.fromkeys(grid.kinds[number] for number in grid.main if grid.kinds[number] is not None):
        chosen = np.array([*plain, *(number for number in grid.main if grid.kinds[number] == kind)])
        found.append(mixed(sampled, lens, local, chosen))
    averaged: Floats = np.mean(found, axis=0)
    return averaged


def pairs_alike(grid: Grid, place: str = "along") -> list[tuple[int, int]]:
    """The pairs of federations of different kinds whose zeta_rms at a place is nearly equal."""
    zeta = medians(grid.lenses[MeasureName("zeta_rms", place)])
    return [
        (one, other)
        for one, other in itertools.combinations(range(len(grid.names)), 2)
        if grid.kinds[one] != grid.kinds[other] and max(zeta[one], zeta[other]) <= ALIKE * min(zeta[one], zeta[other])
    ]


def ordered_pairs(sampled: Sampled, lens: MeasureName, local: str, pairs: Sequence[tuple[int, int]]) -> Floats:
    """The fraction of pairs that a lens orders as the slowdown does, for every draw; equal slowdowns do not count.

    A lens that says the same of both is right in half of the cases.
    """
    one, other = np.array(pairs).T
    harm, shown = sampled.harm(local), sampled.lens(lens, local)
    with np.errstate(invalid="ignore"):
        worse = np.sign(np.nan_to_num(harm[:, one] - harm[:, other], nan=0.0))
        said = np.sign(np.nan_to_num(shown[:, one] - shown[:, other], nan=0.0))
    right = np.where(said == 0, 0.5, said == worse) * (worse != 0)
    counted = np.maximum((worse != 0).sum(axis=1), 1)
    fractions: Floats = right.sum(axis=1) / counted
    return fractions


def partial(one: Floats, other: Floats, between: Floats) -> Floats:
    """Kendall's partial tau: of one lens with the slowdown, given another lens.

    Args:
        one: tau of the lens with the slowdown.
        other: tau of the given lens with the slowdown.
        between: tau between the two lenses.

    >>> float(partial(np.array(0.6), np.array(0.0), np.array(0.0)))
    0.6
    """
    below = np.sqrt((1 - other**2) * (1 - between**2))
    found: Floats = np.divide(one - other * between, below, out=np.zeros_like(below), where=below > 1e-12)
    return found


def given(sampled: Sampled, lens: MeasureName, other: MeasureName, local: str) -> Floats:
    """The partial tau of a lens given another one, over federations of all kinds, for every draw."""
    main = sampled.grid.main
    between = taus(sampled.lens(lens, local)[:, main], sampled.lens(other, local)[:, main])
    return partial(mixed(sampled, lens, local), mixed(sampled, other, local), between)


def answers(grid: Grid, seed: int = 0) -> dict[str, Any]:
    """All answers, as JSON."""
    sampled = Sampled(grid, seed)
    pairs, equal = pairs_alike(grid), np.flatnonzero(grid.reached)
    rows = []
    for lens in grid.known:
        for local in grid.slowdowns:
            row: dict[str, Any] = {"lens": lens.name, "place": lens.place, "local_steps": int(local)}
            row["within"] = sampled.answer(within(sampled, lens, local))
            row["mixed"] = sampled.answer(mixed(sampled, lens, local))
            if len(equal) > 2:
                row["equal zeta"] = sampled.answer(mixed(sampled, lens, local, equal))
            if pairs:
                row["pairs"] = sampled.answer(ordered_pairs(sampled, lens, local, pairs))
            rows.append(row)
    return {
        "orders": rows,
        "equal": [grid.names[number] for number in equal],
        "not reached": [grid.names[number] for number in np.flatnonzero(grid.designed & ~grid.reached)],
        "pairs": len(pairs),
        "partial": _partials(sampled),
        "differences": _differences(sampled),
        "places": _places(sampled),
        "without a kind": _without(sampled),
        "verdict": _verdict(sampled, equal),
    }


_RIVALS = (("L_h seen", "zeta_rms"), ("L_h", "zeta_rms"), ("zeta_rms · L_h seen", "zeta_rms"))


def _partials(sampled: Sampled) -> list[dict[str, Any]]:
    """Partial taus of L_h given zeta and of zeta given L_h, at every place and for every number of local steps."""
    found = []
    for (one, other), place, local in itertools.product(_RIVALS[:2], PLACES, sampled.grid.slowdowns):
        both = MeasureName(one, place), MeasureName(other, place)
        if all(lens in sampled.grid.lenses for lens in both):
            for lens, fixed in (both, both[::-1]):
                answer = sampled.answer(given(sampled, lens, fixed, local))
                named = {"lens": lens.name, "given": fixed.name, "place": place, "local_steps": int(local)}
                found.append({**named, "tau": answer})
    return found


def _differences(sampled: Sampled) -> list[dict[str, Any]]:
    """How much larger the tau of one lens is than that of another, over all kinds mixed."""
    found = []
    for (one, other), place, local in itertools.product(_RIVALS, PLACES, sampled.grid.slowdowns):
        if MeasureName(one, place) in sampled.grid.lenses:
            values = mixed(sampled, MeasureName(one, place), local) - mixed(sampled, MeasureName(other, place), local)
            named = {"lens": one, "less": other, "place": place, "local_steps": int(local)}
            found.append({**named, "difference": sampled.answer(values)})
    return found


def _places(sampled: Sampled) -> list[dict[str, Any]]:
    """Tau between what a lens says at two places, over all kinds mixed."""
    main, local = sampled.grid.main, MAIN[0]
    found = []
    for name in dict.fromkeys(lens.name for lens in sampled.grid.lenses if lens.place):
        for one, other in (("first", "along"), ("along", "end")):
            if MeasureName(name, one) in sampled.grid.lenses and MeasureName(name, other) in sampled.grid.lenses:
                values = [sampled.lens(MeasureName(name, place), local)[:, main] for place in (one, other)]
                found.append({"lens": name, "from": one, "to": other, "tau": sampled.answer(taus(*values))})
    return found


def _without(sampled: Sampled) -> list[dict[str, Any]]:
    """The main comparison when one kind is left out: which kinds there are is a choice, and may decide."""
    grid, (_, place, first, second) = sampled.grid, MAIN
    found = []
    kinds = dict.fromkeys(grid.kinds[number] for number in grid.main if grid.kinds[number] is not None)
    for kind, local in itertools.product(kinds, grid.slowdowns):
        rest = np.array([number for number in grid.main if grid.kinds[number] != kind])
        one, other = (mixed(sampled, MeasureName(name, place), local, rest) for name in (second, first))
        taken = {second: one, first: other, "difference": one - other}
        answered = {name: sampled.answer(values) for name, values in taken.items()}
        found.append({"without": kind, "local_steps": int(local), **answered})
    return found


def _verdict(sampled: Sampled, equal: Any) -> dict[str, Any]:
    """What the plan calls the outcome of the main comparison, and the numbers that it follows from."""
    local, place, first, second = MAIN
    zeta, L_h, both = MeasureName(first, place), MeasureName(second, place), MeasureName(f"{first} · {second}", place)
    taken = {
        "L_h - zeta": mixed(sampled, L_h, local) - mixed(sampled, zeta, local),
        "product - zeta": mixed(sampled, both, local) - mixed(sampled, zeta, local),
        "L_h given zeta": given(sampled, L_h, zeta, local),
        "zeta given L_h": given(sampled, zeta, L_h, local),
    }
    if len(equal) > 2:
        taken["L_h at equal zeta"] = mixed(sampled, L_h, local, equal)
    numbers = {name: sampled.answer(values) for name, values in taken.items()}
    return {"numbers": numbers, "words": words_for(numbers)}


def words_for(numbers: Mapping[str, MeasureScore]) -> str:
    """The words that the plan has for an outcome; without an interval nothing is decided.

    >>> sure, unsure = MeasureScore(0.5, 0.2, 0.7), MeasureScore(0.1, -0.2, 0.3)
    >>> words_for({"L_h - zeta": unsure, "product - zeta": unsure, "L_h given zeta": sure, "zeta given L_h": sure})
    'L_h adds to zeta'
    """

    def above(name: str, sign: int = 1) -> bool:
        if name not in numbers or numbers[name].low is None or numbers[name].high is None:
            return False
        end = numbers[name].low if sign > 0 else numbers[name].high
        return end is not None and sign * end > 0

    if all(map(above, ("L_h - zeta", "L_h given zeta", "L_h at equal zeta"))):
        return "L_h decides"
    outcomes = []
    if above("L_h - zeta", -1) and above("zeta given L_h"):
        outcomes.append("zeta decides")
    if above("L_h given zeta") or above("product - zeta"):
        outcomes.append("L_h adds to zeta")
    return "; ".join(outcomes) or "this experiment does not separate them"
