"""The paper's claims about Figures 2 to 9: more local steps are better after the same number of rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fedgauge_planning.sweep import over_seeds
from fedgauge_wang2024 import training_curves
from fedgauge_wang2024.studies import FIGURES, STUDIES, Panel
from fedgauge_wang2024.trained import guess_loss, is_trained
from fedgauge_wang2024.verdicts import Claim, Found, ResultCost, ResultData, verdict

MARKS = (0.25, 0.5, 1.0)
"""The parts of the rounds at which curves are compared."""
Point = tuple[float, float]
"""Mean and deviation over seeds."""
Points = Mapping[int, Point]
"""Points of several curves by local steps, from the fewest on."""


class CurveRace(NamedTuple):
    """A panel's curves at a few rounds.

    Attributes:
        points: of all curves, by round.
        seeds: how many, which all curves have.
        guess: the loss of the best constant guess.
        reference: the last training loss of I = 1.
    """

    points: Mapping[int, Points]
    seeds: int
    guess: float
    reference: float

    @property
    def ends(self) -> Points:
        """The curves at the last round that all of them have."""
        return self.points[max(self.points)]


def race(result: ResultData, panel: Panel) -> CurveRace | None:
    """A panel's curves at a quarter, half and all of the rounds; None where there are no two, or none of I = 1."""
    curves = dict(sorted(training_curves.of(result, panel).items()))
    made = result["studies"].get(panel.study)
    curves, seeds = _over_shared_seeds(curves, made["seeds"] if made else 0)
    common = sorted(set.intersection(*(set(each["rounds"]) for each in curves.values()))) if curves else []
    if len(curves) < 2 or 1 not in curves or not common or not all(each[panel.quantity] for each in curves.values()):
        return None
    marks = dict.fromkeys(min(r for r in common if r >= mark * common[-1]) for mark in MARKS)
    guess = guess_loss(made["experiment"]["data"], STUDIES[panel.study].classes, panel.percent)
    points = {
        mark: {steps: _point(each, panel, each["rounds"].index(mark)) for steps, each in curves.items()}
        for mark in marks
    }
    return CurveRace(points, seeds, guess, curves[1]["loss"]["mean"][-1])


def _over_shared_seeds(curves: dict[int, ResultData], seeds: int) -> tuple[dict[int, ResultData], int]:
    """Curves over the seeds that all of them have, with their number, where some have more than others."""
    held = [{run["seed"] for run in each.get("runs", ())} for each in curves.values()]
    if all(each == held[0] for each in held):
        return curves, len(held[0]) if held and held[0] else seeds  # older results have no single runs
    shared = set.intersection(*held)
    runs = {steps: [run for run in each["runs"] if run["seed"] in shared] for steps, each in curves.items()}
    return {steps: over_seeds(mine) for steps, mine in runs.items() if mine}, len(shared)


def _point(curve: ResultData, panel: Panel, place: int) -> Point:
    held = curve[panel.quantity]
    return held["mean"][place], held["deviation"][place]


def _better(panel: Panel, one: Point, other: Point) -> bool:
    """Whether one point is better than another by more than their spread."""
    gap = other[0] - one[0] if panel.quantity == "loss" else one[0] - other[0]
    return gap > one[1] + other[1]


def _described(panel: Panel, points: Points, seeds: int) -> str:
    def shown(value: float, deviation: float) -> str:
        if panel.quantity == "accuracy":
            return f"{value:.1%}" + (f" ± {deviation:.1%}" if seeds > 1 else "")
        return f"{value:.3g}" + (f" ± {deviation:.1g}" if seeds > 1 else "")

    return "; ".join(f"I = {steps}: {shown(*point)}" for steps, point in points.items())


# -- three claims ----------------------------------------------------------------------------------------------------

Holds = Callable[[Panel, CurveRace], bool]


def every_step(panel: Panel, run: CurveRace) -> bool:
    """More local steps end better, each time."""
    return all(_better(panel, more, fewer) for fewer, more in pairwise(run.ends.values()))


def largest(panel: Panel, run: CurveRace) -> bool:
    """The largest I ends better than all others."""
    *others, most = run.ends.values()
    return all(_better(panel, most, other) for other in others)


def faster(panel: Panel, run: CurveRace) -> bool:
    """More local steps are better at one of the marks at least, and worse at none, each time.

    Two curves on a common plateau, at the beginning or at the end, say nothing about which of them is faster.
    """

    def ahead(fewer: int, more: int) -> bool:
        pairs = [(each[more], each[fewer]) for each in run.points.values()]
        worse = any(_better(panel, other, one) for one, other in pairs)
        return not worse and any(_better(panel, one, other) for one, other in pairs)

    return all(ahead(fewer, more) for fewer, more in pairwise(run.ends))


def _at_marks(panel: Panel, run: CurveRace) -> str:
    def values(points: Points) -> str:
        return ", ".join(f"{value:.3g}" for value, _ in points.values())

    steps = ", ".join(map(str, run.ends))
    return f"I = {steps}: " + "; ".join(f"round {mark}: {values(points)}" for mark, points in run.points.items())


def _at_end(panel: Panel, run: CurveRace) -> str:
    return _described(panel, run.ends, run.seeds)


def _judge(
    panel: Panel, holds: Holds, tell: Callable[[Panel, CurveRace], str] = _at_end
) -> Callable[[ResultData], Found | None]:
    def judge(result: ResultData) -> Found | None:
        run = race(result, panel)
        if run is None:
            return None
        if not is_trained(run.reference, run.guess):
            why = f"I = 1 is at a loss of {run.reference:.3g}, where a constant guess has {run.guess:.3g}"
            return Found("not decided: the reference did not train", f"{tell(panel, run)}; {why}")
        return Found(verdict(holds(panel, run)), tell(panel, run))

    return judge


def _cost(panel: Panel) -> Callable[[ResultData], ResultCost]:
    def cost(result: ResultData) -> ResultCost:
        run = race(result, panel)
        if run is None:
            return ResultCost("–", None, None)
        curves = training_curves.of(result, panel).values()
        return ResultCost(result["scale"], run.seeds, sum(each["seconds"] for each in curves))

    return cost


def curve_claims() -> Iterator[Claim]:
    """All claims about curves, figure by figure."""
    for name, panels in FIGURES.items():
        letters: dict[Panel, str] = dict(zip(panels, "abcd", strict=False))
        for panel in panels:
            yield from _claims(name, panel, f"Figure {name.removeprefix('fig')}({letters[panel]})")


def _claims(name: str, panel: Panel, where: str) -> Sequence[Claim]:
    study, cost = f"{STUDIES[panel.study].title}, {panel.percent}%", _cost(panel)
    options = f"--model {panel.study}" if len({each.study for each in FIGURES[name]}) > 1 else ""

    def claim(text: str, short: str, paper: str, judge: Callable[[ResultData], Found | None]) -> Claim:
        return Claim(f"{study}: {text}", short, where, paper, name, judge, cost, options)

    if panel.quantity == "accuracy":
        text = "the largest I ends with the highest test accuracy"
        return (claim(text, "accuracy", "largest I best", _judge(panel, largest)),)
    return (
        claim(
            "after the same rounds, more local steps mean a lower training loss",
            "lower loss",
            "falls with I",
            _judge(panel, every_step),
        ),
        claim(
            "the largest I ends with the lowest training loss",
            "largest I lowest",
            "largest I best",
            _judge(panel, largest),
        ),
        claim(
            "a larger I converges faster (training loss after a quarter, half and all of the rounds)",
            "faster",
            "faster with I",
            _judge(panel, faster, _at_marks),
        ),
    )
