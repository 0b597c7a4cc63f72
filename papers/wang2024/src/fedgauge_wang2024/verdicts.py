"""A claim of the paper, and the verdicts that a result can give it.

A verdict is computed from the numbers of a result and from nothing else:

- ``reproduced``: the claim holds, and not by chance, and sizes agree within a factor of two where the paper prints any.
  A curve is better than another if it is better by more than the sum of their deviations over seeds; a constant is
  below another if it is with every seed; a constant grows if its mean never falls, and the whole rise exceeds the sum
  of the deviations at both ends;
- ``reproduced in order but not in size``: the order holds, and the sizes do not agree;
- ``not reproduced``: the claim does not hold, or not clearly enough;
- ``not decided``: the curve of one local step, with which the others are compared, or the model at which constants were
  measured has learned nothing (:mod:`fedgauge_wang2024.trained`), so that the numbers say nothing about the claim;
- ``not run``: there is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Verdict = Literal[
    "reproduced",
    "reproduced in order but not in size",
    "not reproduced",
    "not decided: the reference did not train",
    "not decided: the measured model is not trained",
    "not run",
]
ResultData = Mapping[str, Any]
SIZE = 2.0
"""Sizes agree if they are within this factor of each other."""


class Found(NamedTuple):
    """What a result says about a claim."""

    verdict: Verdict
    ours: str


class ResultCost(NamedTuple):
    """The scale, seeds and seconds that a result took."""

    scale: str
    seeds: int | None
    seconds: float | None


class Judged(NamedTuple):
    """What the results say about a claim, and what the one that decided it took."""

    found: Found
    cost: ResultCost


NOT_RUN = Judged(Found("not run", "–"), ResultCost("–", None, None))


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: what is claimed.
        short: the same in two or three words, as the head of a column.
        where: in the paper.
        paper: its numbers, or the order.
        result: the name of the result that decides it, which is also that of its command and its directory.
        judge: what a result says about it; ``None`` if the result does not have what the claim is about.
        cost: what the result took.
        options: of that command.
    """

    text: str
    short: str
    where: str
    paper: str
    result: str
    judge: Callable[[ResultData], Found | None]
    cost: Callable[[ResultData], ResultCost]
    options: str = ""

    def judged(self, results: Mapping[str, Sequence[ResultData]]) -> Judged:
        """The verdict of the first result that has what the claim is about; results of one name are in order of trust.

        A result of the scale ``smoke`` shows that a command works, and says nothing about the claim.
        """
        for result in results.get(self.result, ()):
            cost = self.cost(result)
            found = None if cost.scale == "smoke" else self.judge(result)
            if found is not None:
                return Judged(found, cost)
        return NOT_RUN


def verdict(order: bool, size: bool = True) -> Verdict:
    """The verdict where the order holds or does not, and the size agrees or does not."""
    if not order:
        return "not reproduced"
    return "reproduced" if size else "reproduced in order but not in size"
