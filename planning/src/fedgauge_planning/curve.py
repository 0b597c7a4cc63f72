"""What a plan by theory shows around its choice: the best for other local steps, and how it changes with constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauge.theory.search import Choice, Task, candidate_steps, height_of
from fedgauge.values import Value

_POINTS = 60  # points of the curve that is drawn


@dataclass(frozen=True)
class Point(Value):
    """The best for one number of local steps: rounds, seconds, gamma, and the terms of the bound."""

    I: int  # noqa: E741
    R: float
    gamma: float
    seconds: float
    terms: tuple[float, ...]

    @property
    def bound(self) -> float:
        """The sum of the terms."""
        return float(sum(self.terms))


def relaxed(task: Task, near: int) -> float:
    """Return the least cost (or bound) near some I with fractional rounds, which changes smoothly with the constants.

    >>> from fedgauge.algorithms.cost import Cost
    >>> cost = Cost("given", fixed=1.0, step=0.1)
    >>> values = dict(F=1, N=8, sigma2=0, L_g=1)
    >>> round(relaxed(Task("minibatch", "corrected", values, cost, 8, target=0.03), near=1), 4)  # 66.67 rounds of 1.1 s
    73.3333
    """
    last = int(candidate_steps(task)[-1])
    steps = np.unique(np.clip(np.geomspace(near / 2, 2 * near, 33).round().astype(int), 1, last))
    return float(height_of(task, steps, whole=False)[1].min())


def trace(task: Task, choice: Choice) -> tuple[Point, ...]:
    """Return the best plan for some numbers of local steps, the chosen one included, where the goal is reached."""
    steps = candidate_steps(task)
    most = min(int(steps[-1]), max(32, 16 * choice.I))
    some = np.unique(np.append(np.geomspace(1, most, _POINTS).round().astype(int), choice.I))
    tuned, _ = height_of(task, some)
    keep = np.isfinite(tuned.total)
    some, rate, rounds = some[keep], tuned.rate[keep], np.maximum(np.ceil(tuned.rounds[keep]), 1.0)
    terms = np.array([np.broadcast_to(term.value, some.shape) for term in task.free.bound(some, rate, rounds).terms]).T
    seconds = rounds * task.seconds(some)
    gamma = rate if task.eta is not None else np.full(some.shape, task.gamma_min)
    rows = zip(some.tolist(), rounds.tolist(), gamma.tolist(), seconds.tolist(), terms.tolist(), strict=True)
    return tuple(Point(i, R, g, s, tuple(t)) for i, R, g, s, t in rows)
