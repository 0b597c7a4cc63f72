"""The paper's claims about Table 1: how L_h, L_tilde and L_g change with X, and which is below which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from fedgauge_wang2024 import table1
from fedgauge_wang2024.studies import STUDIES
from fedgauge_wang2024.trained import guess_loss, is_trained
from fedgauge_wang2024.verdicts import SIZE, Claim, Found, ResultCost, ResultData, verdict

_MUCH = 0.2
"""A constant is much below another if it is at most this part of it."""
_ENOUGH = 3
"""Of the four X, how many must be measured at models that have learned something for a claim to be reproduced."""
_BY_X = ("rows", "cells")
Judge = Callable[[ResultData], Found | None]


def _column(result: ResultData, symbol: str) -> list[tuple[float, float]]:
    """A constant's mean and deviation for each X, by the paper's estimator."""
    return [tuple(row["readings"]["trajectory"][symbol]) for row in result["rows"]]


def _seeds(result: ResultData) -> list[int]:
    """The number of seeds at each X."""
    return [len(row["rounds"]) for row in result["rows"]]


def _listed(result: ResultData, symbol: str) -> str:
    """A constant's means, with their deviations at those X that have several seeds."""
    return ", ".join(
        f"{value:.3g}" + (f" ± {float(f'{deviation:.1g}'):g}" if seeds > 1 else "")
        for (value, deviation), seeds in zip(_column(result, symbol), _seeds(result), strict=True)
    )


def _sized(result: ResultData, symbol: str) -> bool:
    """Whether a constant agrees with the paper's in size, at every X."""
    printed = table1.PAPER[result["settings"]["study"]][symbol]
    return all(
        1 / SIZE <= row["readings"]["trajectory"][symbol][0] / printed[row["percent"]][0] <= SIZE
        for row in result["rows"]
    )


def _grows(symbol: str) -> Judge:
    def judge(result: ResultData) -> Found | None:
        values = _column(result, symbol)
        if len(values) < 2:
            return None
        (first, low), (last, high) = values[0], values[-1]
        order = all(a <= b for (a, _), (b, _) in pairwise(values)) and last - first > low + high
        return Found(verdict(order, _sized(result, symbol)), _listed(result, symbol))

    return judge


def _parts(result: ResultData, *symbols: str) -> dict[int, list[float]]:
    """For each X the sum of some constants over L_tilde, seed by seed."""
    parts: dict[int, list[float]] = {row["percent"]: [] for row in result["rows"]}
    for cell in result["cells"]:
        (reading,) = (each for each in cell["measured"]["readings"] if each["name"] == "trajectory")
        values = {each["symbol"]: each["value"] for each in reading["estimates"]}
        parts[cell["percent"]].append(sum(values[symbol] for symbol in symbols) / values["L_tilde"])
    return parts


def _printed_parts(printed: table1.Printed, *symbols: str) -> dict[int, float]:
    """The same from the paper's means."""
    return {X: sum(printed[symbol][X][0] for symbol in symbols) / mean for X, (mean, _) in printed["L_tilde"].items()}


def _below(*symbols: str, part: float = 1.0, printed: Mapping[int, float] | None = None) -> Judge:
    """The sum of some constants is at most a part of L_tilde with every seed, and in size as printed, if given."""

    def judge(result: ResultData) -> Found:
        parts = _parts(result, *symbols)
        ours = {X: fmean(each) for X, each in parts.items()}
        # Where the paper prints no size, there is none to disagree with.
        sized = printed is None or all(1 / SIZE <= ours[X] / printed[X] <= SIZE for X in ours)
        largest = max(value for each in parts.values() for value in each)
        ours_text = f"{_shares(ours)} of L_tilde; the largest with one seed {largest:.3g}"
        return Found(verdict(largest <= part, sized), ours_text)

    return judge


def _shares(parts: Mapping[int, float]) -> str:
    return ", ".join(f"{part:.3g}" for part in parts.values())


def _same(result: ResultData) -> Found | None:
    """L_g is the same at every X, to within the spread over seeds, of which one seed says nothing."""
    values = _column(result, "L_g")
    if len(values) < 2 or min(_seeds(result)) < 2:
        return None
    order = max(value - deviation for value, deviation in values) <= min(
        value + deviation for value, deviation in values
    )
    return Found(verdict(order, _sized(result, "L_g")), _listed(result, "L_g"))


def _untrained(result: ResultData) -> dict[int, tuple[float, float]]:
    """The X at which a measured model has learned nothing: its loss there, and that of a constant guess."""
    classes = STUDIES[result["settings"]["study"]].classes
    found: dict[int, tuple[float, float]] = {}
    for cell in result["cells"]:
        X, measured = cell["percent"], cell["measured"]
        guess = guess_loss(measured["settings"]["experiment"]["data"], classes, X)
        loss = measured["point"]["loss"]
        if not is_trained(loss, guess):
            found[X] = max(loss, found.get(X, (loss, guess))[0]), guess
    return found


def _of_trained(judge: Judge) -> Judge:
    """The verdict on those X at which the measured models have learned something, if they are enough."""

    def judged(result: ResultData) -> Found | None:
        untrained = _untrained(result)
        trained = {name: [each for each in result[name] if each["percent"] not in untrained] for name in _BY_X}
        is_enough = not untrained or len(trained["rows"]) >= _ENOUGH
        found = judge({**result, **trained} if is_enough else result)
        seen = [row["percent"] for row in (trained if is_enough else result)["rows"]]
        # A row or two can refute what is said of every X, but not confirm it.
        if found is None or (len(seen) < _ENOUGH and found.verdict.startswith("reproduced")):
            return None
        ours = found.ours
        if len(seen) < len(table1.PERCENTS):
            ours += f"; at {', '.join(map(str, seen))}% only"
        if untrained:
            losses = ", ".join(f"{loss:.3g} ({guess:.3g}) at {X}%" for X, (loss, guess) in untrained.items())
            ours += f"; not trained (loss, and that of a constant guess): {losses}"
        return Found(found.verdict if is_enough else "not decided: the measured model is not trained", ours)

    return judged


def _cost(result: ResultData) -> ResultCost:
    settings, cells = result["settings"], [cell["measured"] for cell in result["cells"]]
    return ResultCost(settings["scale"], min(_seeds(result)), seconds_of(cells))


def seconds_of(cells: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of all cells together; None where one does not say."""
    seconds = [cell.get("seconds") for cell in cells]
    return None if None in seconds else sum(filter(None, seconds))


def table1_claims() -> Iterator[Claim]:
    """All claims about Table 1, model by model."""
    for name, printed in table1.PAPER.items():
        study, result = STUDIES[name].title, "table1" if name == "mlp" else f"table1-{name}"

        def listed(symbol: str, printed: table1.Printed = printed) -> str:
            return ", ".join(f"{value:g}" for value, _ in printed[symbol].values())

        for text, short, paper, judge in (
            ("L_tilde grows with X (25, 50, 75, 100%)", "L_tilde grows", listed("L_tilde"), _grows("L_tilde")),
            ("L_h grows with X", "L_h grows", listed("L_h"), _grows("L_h")),
            ("L_g does not depend on X", "L_g same", f"{printed['L_g'][25][0]:g}", _same),
            ("L_h is below L_tilde", "L_h < L_tilde", "at every X", _below("L_h")),
            ("L_g is below L_tilde", "L_g < L_tilde", "at every X", _below("L_g")),
            (
                "L_h is far below L_tilde (here: at most a fifth)",
                "L_h ≪ L_tilde",
                _shares(small := _printed_parts(printed, "L_h")),
                _below("L_h", part=_MUCH, printed=small),
            ),
            (
                "L_g + L_h is not larger than L_tilde (Section 4)",
                "L_g + L_h ≤ L_tilde",
                _shares(_printed_parts(printed, "L_g", "L_h")),
                _below("L_g", "L_h"),
            ),
        ):
            options = "" if name == "mlp" else f"--model {name}"
            yield Claim(f"{study}: {text}", short, "Table 1", paper, result, _of_trained(judge), _cost, options)
