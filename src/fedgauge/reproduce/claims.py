"""The paper's claims about its experiments, and what our results say about each of them.

A verdict is computed from the numbers of a result and from nothing else:

- ``reproduced``: the claim holds, and not by chance, and sizes agree within a factor of two where the paper prints any.
  A curve is better than another if it ends better by more than the sum of their deviations over seeds; a constant is
  below another if it is with every seed; a constant grows if its mean never falls, and the whole rise exceeds the sum
  of the deviations at both ends;
- ``reproduced in order but not in size``: the order holds, and the sizes do not agree;
- ``not reproduced``: the claim does not hold, or not clearly enough;
- ``not run``: there is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from fedgauge.reproduce import table1, training_curves
from fedgauge.reproduce.studies import FIGURES, STUDIES, Panel

Verdict = Literal["reproduced", "reproduced in order but not in size", "not reproduced", "not run"]
ResultData = Mapping[str, Any]
_SIZE = 2.0
"""Sizes agree if they are within this factor of each other."""
_MUCH = 0.2
"""A constant is much below another if it is at most this part of it."""
_RATIO = 0.1
"""The relative error that is allowed between a ratio of rounds and the paper's."""


class Found(NamedTuple):
    """What a result says about a claim."""

    verdict: Verdict
    ours: str


class ResultCost(NamedTuple):
    """The scale, seeds and seconds that a result took."""

    scale: str
    seeds: int | None
    seconds: float | None


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: what is claimed.
        where: in the paper.
        paper: its numbers, or the order.
        result: the name of the result that decides it, which is also that of its command and its directory.
        options: of that command.
        judge: what a result says about it.
        cost: what the result took.
    """

    text: str
    where: str
    paper: str
    result: str
    judge: Callable[[ResultData], Found | None]
    cost: Callable[[ResultData], ResultCost]
    options: str = ""

    def found(self, results: Mapping[str, ResultData]) -> Found:
        """The verdict from all results by name."""
        judged = self.judge(results[self.result]) if self.result in results else None
        return judged or Found("not run", "–")


def _verdict(order: bool, size: bool = True) -> Verdict:
    if not order:
        return "not reproduced"
    return "reproduced" if size else "reproduced in order but not in size"


# -- the figures' curves -------------------------------------------------------------------------------------------


def _ends(result: ResultData, panel: Panel) -> dict[int, tuple[float, float]]:
    """Mean and deviation of a panel's quantity at the last round that all of its curves have."""
    found = training_curves.of(result, panel)
    common = set.intersection(*(set(each["rounds"]) for each in found.values())) if found else set()
    if not common:
        return {}
    ends = {}
    for steps, each in sorted(found.items()):
        if not each[panel.quantity]:
            return {}
        place = each["rounds"].index(max(common))
        ends[steps] = each[panel.quantity]["mean"][place], each[panel.quantity]["deviation"][place]
    return ends


def _better(panel: Panel, one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one curve ends better than another by more than their spread."""
    gap = other[0] - one[0] if panel.quantity == "loss" else one[0] - other[0]
    return gap > one[1] + other[1]


def _described(panel: Panel, ends: Mapping[int, tuple[float, float]], seeds: int) -> str:
    def shown(value: float, deviation: float) -> str:
        if panel.quantity == "accuracy":
            return f"{value:.1%}" + (f" ± {deviation:.1%}" if seeds > 1 else "")
        return f"{value:.3g}" + (f" ± {deviation:.1g}" if seeds > 1 else "")

    return "; ".join(f"I = {steps}: {shown(*end)}" for steps, end in ends.items())


def _every_step(panel: Panel) -> Callable[[ResultData], Found | None]:
    """More local steps are better, each time."""

    def judge(result: ResultData) -> Found | None:
        ends = _ends(result, panel)
        if len(ends) < 2:
            return None
        order = all(_better(panel, more, fewer) for fewer, more in pairwise(ends.values()))
        return Found(_verdict(order), _described(panel, ends, result["studies"][panel.study]["seeds"]))

    return judge


def _largest(panel: Panel) -> Callable[[ResultData], Found | None]:
    """The largest I is better than all others."""

    def judge(result: ResultData) -> Found | None:
        ends = _ends(result, panel)
        if len(ends) < 2:
            return None
        *others, largest = ends.values()
        order = all(_better(panel, largest, other) for other in others)
        return Found(_verdict(order), _described(panel, ends, result["studies"][panel.study]["seeds"]))

    return judge


def _curve_cost(study: str) -> Callable[[ResultData], ResultCost]:
    def cost(result: ResultData) -> ResultCost:
        made = result["studies"].get(study)
        if made is None:
            return ResultCost("–", None, None)
        return ResultCost(result["scale"], made["seeds"], sum(each["seconds"] for each in made["combinations"]))

    return cost


def _curve_claims() -> Iterator[Claim]:
    for name, panels in FIGURES.items():
        for panel in panels:
            study = STUDIES[panel.study].title
            letters = dict(zip(panels, "abcd", strict=False))
            where = f"Figure {name.removeprefix('fig')}({letters[panel]})"
            if panel.quantity == "loss":
                text = f"{study}, {panel.percent}%: after the same rounds, more local steps mean a lower training loss"
                yield Claim(text, where, "falls with I", name, _every_step(panel), _curve_cost(panel.study))
            best = "lowest training loss" if panel.quantity == "loss" else "highest test accuracy"
            text = f"{study}, {panel.percent}%: the largest I ends with the {best}"
            yield Claim(text, where, "largest I best", name, _largest(panel), _curve_cost(panel.study))


# -- Table 1 -------------------------------------------------------------------------------------------------------


def _column(result: ResultData, symbol: str) -> list[tuple[float, float]]:
    """A constant's mean and deviation for each X, by the paper's estimator."""
    return [tuple(row["readings"]["trajectory"][symbol]) for row in result["rows"]]


def _listed(values: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{value:.3g} ± {float(f'{deviation:.1g}'):g}" for value, deviation in values)


def _sized(result: ResultData, symbol: str) -> bool:
    """Whether a constant agrees with the paper's in size, at every X."""
    printed = table1.PAPER[result["settings"]["study"]][symbol]
    return all(
        1 / _SIZE <= row["readings"]["trajectory"][symbol][0] / printed[row["percent"]][0] <= _SIZE
        for row in result["rows"]
    )


def _grows(symbol: str) -> Callable[[ResultData], Found | None]:
    def judge(result: ResultData) -> Found:
        values = _column(result, symbol)
        (first, low), (last, high) = values[0], values[-1]
        order = all(a <= b for (a, _), (b, _) in pairwise(values)) and last - first > low + high
        return Found(_verdict(order, _sized(result, symbol)), _listed(values))

    return judge


def _parts(result: ResultData, *symbols: str) -> dict[int, list[float]]:
    """For each X the sum of some constants over L_tilde, seed by seed."""
    parts: dict[int, list[float]] = {row["percent"]: [] for row in result["rows"]}
    for cell in result["cells"]:
        (reading,) = (each for each in cell["measured"]["readings"] if each["name"] == "trajectory")
        values = {each["symbol"]: each["value"] for each in reading["estimates"]}
        parts[cell["percent"]].append(sum(values[symbol] for symbol in symbols) / values["L_tilde"])
    return parts


def _printed_parts(printed: table1.Printed, *symbols: str) -> list[float]:
    """The same from the paper's means."""
    return [sum(printed[symbol][X][0] for symbol in symbols) / printed["L_tilde"][X][0] for X in table1.PERCENTS]


def _below(*symbols: str, part: float = 1.0, printed: Sequence[float] = ()) -> Callable[[ResultData], Found | None]:
    """The sum of some constants is at most a part of L_tilde with every seed, and in size as printed, if given."""

    def judge(result: ResultData) -> Found:
        parts = _parts(result, *symbols)
        ours = [fmean(each) for each in parts.values()]
        # Where the paper prints no size, there is none to disagree with.
        sized = all(1 / _SIZE <= one / other <= _SIZE for one, other in zip(ours, printed, strict=False))
        largest = max(value for each in parts.values() for value in each)
        ours_text = f"{_shares(ours)} of L_tilde; the largest with one seed {largest:.3g}"
        return Found(_verdict(largest <= part, sized), ours_text)

    return judge


def _shares(parts: Sequence[float]) -> str:
    return ", ".join(f"{part:.3g}" for part in parts)


def _same(result: ResultData) -> Found:
    """L_g is the same at every X, to within the spread over seeds."""
    values = _column(result, "L_g")
    order = max(value - deviation for value, deviation in values) <= min(
        value + deviation for value, deviation in values
    )
    return Found(_verdict(order, _sized(result, "L_g")), _listed(values))


def _seconds(cells: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of all cells together; None where one does not say."""
    seconds = [cell.get("seconds") for cell in cells]
    return None if None in seconds else sum(filter(None, seconds))


def _table1_cost(result: ResultData) -> ResultCost:
    settings, cells = result["settings"], [cell["measured"] for cell in result["cells"]]
    return ResultCost(settings["scale"], settings["seeds"], _seconds(cells))


def _table1_claims() -> Iterator[Claim]:
    for name, printed in table1.PAPER.items():
        study, result = STUDIES[name].title, "table1" if name == "mlp" else f"table1-{name}"

        def listed(symbol: str, printed: table1.Printed = printed) -> str:
            return ", ".join(f"{value:g}" for value, _ in printed[symbol].values())

        for text, paper, judge in (
            ("L_tilde grows with X (25, 50, 75, 100%)", listed("L_tilde"), _grows("L_tilde")),
            ("L_h grows with X", listed("L_h"), _grows("L_h")),
            ("L_g does not depend on X", f"{printed['L_g'][25][0]:g}", _same),
            ("L_h is below L_tilde", "at every X", _below("L_h")),
            ("L_g is below L_tilde", "at every X", _below("L_g")),
            (
                "L_h is far below L_tilde (here: at most a fifth)",
                _shares(small := _printed_parts(printed, "L_h")),
                _below("L_h", part=_MUCH, printed=small),
            ),
            (
                "L_g + L_h is not larger than L_tilde (Section 4)",
                _shares(_printed_parts(printed, "L_g", "L_h")),
                _below("L_g", "L_h"),
            ),
        ):
            options = "" if name == "mlp" else f"--model {name}"
            yield Claim(f"{study}: {text}", "Table 1", paper, result, judge, _table1_cost, options)


# -- Table 2, Figure 1, partial participation ----------------------------------------------------------------------


def _rounds(result: ResultData, **column: Any) -> dict[tuple[int, int], list[int]]:
    """Rounds of one column of Table 2, by number of workers and problem."""
    place = next(
        index
        for index, each in enumerate(result["columns"])
        if all(each[key] == value for key, value in column.items())
    )
    return {(cell["workers"], cell["problem"]): cell["rounds"][place] for cell in result["cells"]}


def _ratio(steps: int) -> Callable[[ResultData], Found | None]:
    def judge(result: ResultData) -> Found:
        one = _rounds(result, half="steps", local_steps=1, batch=1)
        many = _rounds(result, half="steps", local_steps=steps, batch=1)
        ratios = [median(one[key]) / median(many[key]) for key in one]
        order = all(abs(ratio / steps - 1) <= _RATIO for ratio in ratios)
        ours_text = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} problems"
        return Found(_verdict(order), ours_text)

    return judge


def _product(result: ResultData) -> Found:
    """Rates with the same product take the same number of rounds, give or take one."""
    columns = [_rounds(result, half="rates", eta=each["eta"]) for each in result["columns"] if each["half"] == "rates"]
    apart = max(
        abs(a - b) for column in columns for key in column for a, b in zip(column[key], columns[0][key], strict=True)
    )
    low, high = (pick(r for cell in columns[0].values() for r in cell) for pick in (min, max))
    return Found(_verdict(apart <= 1), f"at most {apart} round apart, of {low} to {high}")


def _mini_batch(result: ResultData) -> Found:
    """With equally many gradients per round, local steps take fewer rounds than mini-batches."""
    local, batch = (_rounds(result, half="steps", local_steps=steps, batch=size) for steps, size in ((5, 1), (1, 5)))
    ratios = [median(batch[key]) / median(local[key]) for key in local]
    return Found(
        _verdict(min(ratios) > 1), f"mini-batches take {min(ratios):.2f} to {max(ratios):.2f} times the rounds"
    )


def _table2_cost(result: ResultData) -> ResultCost:
    # A smaller scale has fewer problems, each of the paper's size.
    return ResultCost("paper", result["settings"]["seeds"], _seconds(result["cells"]))


def _stays(result: ResultData) -> Found:
    near, far = result["panels"]
    ours_text = f"{near['gap']:.2g} of a drift of {near['drift']:.2g} at L_h = {near['L_h']:.2g}"
    ours_text += f"; {far['gap']:.2g} of {far['drift']:.2g} at {far['L_h']:.2g}"
    return Found(_verdict(near["gap"] < near["drift"] / 10 < far["gap"]), ours_text)


def _adds(result: ResultData) -> Found:
    """At L_h = 0 nothing is left if all workers take part, and the fewer take part, the more is left."""
    least = min(line["L_h"] for line in result["lines"])
    left = {line["M"]: line["left"] for line in result["lines"] if line["L_h"] == least}
    everyone, *fewer = (left[M] for M in sorted(left, reverse=True))
    order = least == 0 and everyone < 1e-12 * min(fewer) and fewer == sorted(fewer)
    return Found(_verdict(order), "; ".join(f"M = {M}: {left[M]:.2g}" for M in sorted(left, reverse=True)))


def _no_cost(result: ResultData) -> ResultCost:
    return ResultCost("exact", None, None)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Local models may drift far apart while their average stays near the centralised model, if L_h is small",
        "Figure 1",
        "a sketch",
        "fig1",
        _stays,
        _no_cost,
    ),
    *_table1_claims(),
    Claim(
        "Five local steps take a fifth of the rounds, L_h = 0",
        "Table 2",
        "927 : 187",
        "table2",
        _ratio(5),
        _table2_cost,
    ),
    Claim(
        "Ten local steps take a tenth of the rounds, L_h = 0",
        "Table 2",
        "927 : 95",
        "table2",
        _ratio(10),
        _table2_cost,
    ),
    Claim(
        "Only the product of eta and gamma matters, L_h = 0",
        "Table 2",
        "86 ± 1.6 four times",
        "table2",
        _product,
        _table2_cost,
    ),
    Claim(
        "Five local steps beat mini-batches of five, L_h = 0",
        "Table 2",
        "187 against 927",
        "table2",
        _mini_batch,
        _table2_cost,
    ),
    *_curve_claims(),
    Claim(
        "Partial participation adds an error that L_h cannot reduce (what is left of E‖∇f‖² at L_h = 0, of N = 10)",
        "Theorem 4.5",
        "a term without L_h",
        "sampling",
        _adds,
        _no_cost,
    ),
)
