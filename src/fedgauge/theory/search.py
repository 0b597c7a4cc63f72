"""The least cost at which a theorem's bound reaches a goal, over local steps and rates; or the least bound for a cost.

In all but one of the theorems here the bound is A/(x R) + a + b x + c x^2 in the rate x that is free, with A, a, b and
c that depend on I. The best rate for every I then has a closed form, and every I up to the cap is looked at:

- to reach eps soonest, R = A/(x (eps - a - b x - c x^2)) is least at x = r/(b + sqrt(b^2 + 3 c r)), r = eps - a;
- within R rounds, the bound is least where 2 c x^3 + b x^2 = A/R.

Both are cut off at the largest admissible rate. The strongly convex bound is geometric in R, and its rate is searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauge.errors import InputError
from fedgauge.pace.cost import Cost
from fedgauge.theory import find
from fedgauge.theory.base import largest_factor
from fedgauge.theory.inputs import Array
from fedgauge.theory.strongly_convex import log_growth
from fedgauge.values import Bound, Value, Version

PLANNED = ("nonconvex", "partial", "equal-hessians", "quadratic", "strongly-convex")
"""The theorems that plan FedAvg; ``minibatch`` is what it is held against."""
_DENSE = 20  # where the rate is searched, every I up to this is looked at, and so many for each factor of e beyond
_DEPTH = 1e-24  # how far below the largest rate is searched
_TIE = 1e-12  # what rounding may make of equal costs; of equals the fewest local steps are chosen
_POINTS = 60  # of the curve that is drawn


@dataclass(frozen=True)
class Task:
    """What is sought: a theorem at its constants, a cost, and a goal.

    Attributes:
        theorem: its name.
        version: its version.
        values: the constants, N, and M where the theorem has one.
        cost: of a round.
        participants: how many are paid for.
        target: the bound to reach; None with a budget.
        budget: seconds to spend; None with a target.
        eta: the global rate; None is free, and gamma is then ``gamma_min``.
        gamma_min: a floor under gamma.
        cap: the most local steps.
    """

    theorem: str
    version: Version
    values: Mapping[str, float]
    cost: Cost
    participants: int
    target: float | None = None
    budget: float | None = None
    eta: float | None = 1.0
    gamma_min: float | None = None
    cap: int = 10_000

    def seconds(self, steps: Array | int) -> Array:
        """Of a round."""
        return np.asarray(self.cost.round(np.asarray(steps, dtype=float), self.participants))  # type: ignore[arg-type]

    def bound(self, steps: Array | int, rate: Array | float, rounds: Array | float = 1.0) -> Bound:
        """The theorem at a rate: gamma, or eta where that is the free one."""
        given = {**self.values, "I": steps, "R": np.asarray(rounds, dtype=float), **self.rates(rate)}
        return find(self.theorem).evaluate(self.version, **given)

    def rates(self, rate: Array | float) -> dict[str, Any]:
        """Gamma and eta, of which one is the free rate."""
        if self.eta is not None:
            return {"gamma": rate, "eta": self.eta}
        return {"gamma": self.gamma_min, "eta": rate}

    def rounds(self, local_steps: int, rate: float) -> float:
        """How many it takes to reach the target at a rate, infinite where it is never reached."""
        needed = float(_needed(self, np.array([local_steps]), np.array([rate]), self.target or 0.0)[0])
        return max(1.0, math.ceil(needed)) if math.isfinite(needed) else math.inf


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


@dataclass(frozen=True)
class Choice(Value):
    """What one theorem chooses.

    Attributes:
        theorem: its name.
        version: its version.
        I: local steps a round.
        gamma: the local rate.
        eta: the global rate.
        R: rounds.
        seconds: that they take by the cost model.
        bound: after them.
    """

    theorem: str
    version: Version
    I: int  # noqa: E741
    gamma: float
    eta: float
    R: int
    seconds: float
    bound: float


class _Found(NamedTuple):
    """For each I the best rate, the rounds (not rounded up) and the bound after them."""

    rate: Array
    rounds: Array
    total: Array


def _limits(task: Task, steps: Array) -> tuple[Array, Array]:
    """For each I the least and the largest rate to consider; the largest is 0 where none is admissible."""
    probe = task.bound(steps, 1.0)
    if task.eta is not None:
        top = np.asarray(probe.gamma_max)
        low = np.asarray(task.gamma_min or 0.0)
        top = np.where(low > top, 0.0, top)
    else:
        fine = [c.holds for c in probe.conditions if c.name != "gamma eta"]
        top = np.where(np.all(np.broadcast_arrays(*fine), axis=0), 1.0, 0.0)
        top = np.where(top > 0, largest_factor(probe.gamma_eta_max, task.gamma_min or 1.0), 0.0)
        low = np.asarray(0.0)
    if np.isinf(top).any():
        raise InputError(f"{task.theorem} sets the rate no limit at these values, so that there is no best; check L_g.")
    top = np.broadcast_to(top, steps.shape)
    return np.maximum(np.minimum(low, top), top * _DEPTH), top


def _coefficients(task: Task, steps: Array) -> tuple[Array, Array, Array, Array]:
    """A, a, b, c of the bound A/(x R) + a + b x + c x^2, for each I; each term's power of x shows when x is doubled."""
    sums: dict[int, Array] = {power: np.zeros(steps.shape) for power in (-1, 0, 1, 2)}
    for one, two in zip(task.bound(steps, 1.0).terms, task.bound(steps, 2.0).terms, strict=True):
        first, second = np.broadcast_arrays(one.value, two.value)
        shown = (first > 0) & np.isfinite(second)
        power = round(float(np.log2((second[shown] / first[shown])[0]))) if shown.any() else 0
        sums[power] = np.asarray(sums[power] + first)
    return sums[-1], sums[0], sums[1], sums[2]


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _needed(task: Task, steps: Array, rate: Array, eps: float) -> Array:
    """The rounds after which the bound is eps, infinite where it never is."""
    bound = task.bound(steps, rate)
    first, errors = np.zeros(np.shape(rate)), np.zeros(np.shape(rate))
    for term in bound.terms:
        if "R" in term.symbols:
            first = np.asarray(first + term.value)
        else:
            errors = np.asarray(errors + term.value)
    room = eps - errors
    if task.theorem == "strongly-convex":
        given = {**task.values, "I": steps, "R": 1.0, **task.rates(rate)}
        grown, _ = log_growth(task.version, {name: np.asarray(value) for name, value in given.items()})
        rounds = np.log1p(first * np.expm1(grown) / room) / grown
    else:
        rounds = first / room
    return np.where(room > 0, rounds, np.inf)


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _least(s: Array, b: Array, c: Array) -> Array:
    """Where 2 c x^3 + b x^2 = s; infinite where b = c = 0."""
    # One of the two parts alone is s here; with s = 0 a part that is 0 too says nothing.
    high = np.fmin(np.sqrt(s / b), np.cbrt(s / (2 * c)))
    high = np.where(np.isnan(high), np.inf, high)
    low = high / 2  # and here the two together are below s
    for _ in range(54):
        middle = (low + high) / 2
        above = middle * middle * (2 * c * middle + b) > s
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def _zoom(height: Callable[[Array], Array], low: Array, top: Array) -> Array:
    """The lowest point of each [low, top] on a log scale, by grids, each within two cells of the one before.

    All points of a grid are one evaluation, which makes this ten times as fast here as golden sections.
    """
    left, right, columns = np.zeros(low.shape), np.ones(low.shape), np.arange(len(low))
    width, best = np.log(top / low), top
    for points in (97, *[17] * 7):
        share = left + (right - left) * np.linspace(0, 1, points)[:, None]
        rate = np.where(share >= 1, top, np.minimum(low * np.exp(share * width), top))  # one ulp above is inadmissible
        at = np.argmin(height(rate), axis=0)
        best = rate[at, columns]
        left, right = share[np.maximum(at - 1, 0), columns], share[np.minimum(at + 1, points - 1), columns]
    return best


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _tune(task: Task, steps: Array, rounds: Array | None = None) -> _Found:
    """The best rate for each I: with the fewest rounds to the target, or with the least bound after given rounds."""
    low, top = _limits(task, steps)
    allowed = top > 0
    if task.theorem == "strongly-convex":

        def height(rate: Array) -> Array:
            if rounds is None:
                return _needed(task, steps, rate, task.target or 0.0)
            return np.asarray(task.bound(steps, rate, rounds).total)

        rate = _zoom(height, np.where(allowed, low, 0.5), np.where(allowed, top, 1.0))
    else:
        A, a, b, c = _coefficients(task, steps)
        if rounds is None:
            room = np.maximum((task.target or 0.0) - a, 0.0)
            best = np.where(room > 0, room / (b + np.sqrt(b * b + 3 * c * room)), 0.0)
        else:
            best = _least(A / rounds, b, c)
        rate = np.where(allowed, np.clip(best, low, top), 1.0)
    needed = np.where(allowed, _needed(task, steps, rate, task.target), np.inf) if task.target is not None else rounds
    assert needed is not None
    spent = np.maximum(np.ceil(needed), 1.0) if rounds is None else rounds
    finite = np.isfinite(spent)
    total = np.asarray(task.bound(steps, rate, np.where(finite, spent, 1.0)).total)
    return _Found(rate, np.where(allowed, needed, np.inf), np.where(allowed & finite, total, np.inf))


def _affordable(task: Task, steps: Array) -> Array | None:
    """The whole rounds that the budget pays for."""
    if task.budget is None:
        return None
    return np.asarray(np.floor(task.budget / task.seconds(steps) * (1 + _TIE)))


def _candidates(task: Task) -> npt.NDArray[Any]:
    most = task.cap
    if task.budget is not None:
        communication, step = float(task.seconds(0)), task.cost.step or 0.0
        room = task.budget * (1 + _TIE) - communication
        most = min(most, int(room / step)) if step else most
        if most < 1 or room < 0:
            raise InputError(
                f"The budget must pay for one round, {float(task.seconds(1)):.6g} s at the least, not {task.budget!r} "
                "s; raise it or lower the cost."
            )
    if task.theorem != "strongly-convex":
        return np.arange(1, most + 1)
    points = 2 + round(_DENSE * max(0.0, math.log(most / _DENSE)))
    far = np.geomspace(min(most, _DENSE), most, points).round().astype(int)
    return np.union1d(np.arange(1, min(most, _DENSE) + 1), far)


def _height(task: Task, steps: Array, whole: bool = True) -> tuple[_Found, Array]:
    """What is to be least, for each I: the seconds to the target, or the bound within the budget."""
    found = _tune(task, steps, _affordable(task, steps))
    if task.target is None:
        return found, found.total
    rounds = np.maximum(np.ceil(found.rounds) if whole else found.rounds, 1.0)
    return found, rounds * task.seconds(steps)


def _search(task: Task) -> tuple[Array, Array]:
    """Candidates for I and their heights; where I was thinned out, with all between the best one's neighbours."""
    steps = _candidates(task)
    height = _height(task, steps)[1]
    at = int(np.argmin(height))
    between: npt.NDArray[Any] = np.arange(steps[max(at - 1, 0)], steps[min(at + 1, len(steps) - 1)] + 1)
    if np.isfinite(height[at]) and len(between) > 3:
        steps = between
        height = _height(task, steps)[1]
    return steps, height


def relaxed(task: Task, near: int) -> float:
    """What is to be least, near some I, with rounds that need not be whole: it moves smoothly with the constants.

    >>> cost = Cost("given", fixed=1.0, step=0.1)
    >>> values = dict(F=1, N=8, sigma2=0, L_g=1)
    >>> round(relaxed(Task("minibatch", "corrected", values, cost, 8, target=0.03), near=1), 4)  # 66.67 rounds of 1.1 s
    73.3333
    """
    last = int(_candidates(task)[-1])
    steps = np.unique(np.clip(np.geomspace(near / 2, 2 * near, 33).round().astype(int), 1, last))
    return float(_height(task, steps, whole=False)[1].min())


def solve(task: Task) -> Choice:
    """The local steps, rates and rounds with the least seconds to the target, or the least bound within the budget.

    >>> cost = Cost("given", fixed=1.0, step=0.1)
    >>> values = dict(F=1, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.1)
    >>> choice = solve(Task("nonconvex", "corrected", values, cost, 8, target=0.1))
    >>> choice.I, choice.R, round(choice.gamma, 5), round(choice.bound, 6)
    (3, 569, 0.03043, 0.099964)
    """
    steps, height = _search(task)
    least = height.min()
    if not np.isfinite(least):
        raise InputError(_unreachable(task))
    I = int(steps[np.flatnonzero(height <= least * (1 + _TIE))[0]])  # noqa: E741
    one = np.array([I])
    afforded = _affordable(task, one)
    R = max(1.0, float(np.ceil(_tune(task, one).rounds[0]))) if afforded is None else float(afforded[0])
    while True:
        found = _tune(task, one, np.array([R]))
        if task.target is None or found.total[0] <= task.target:
            break
        R = math.floor(R * (1 + 1e-15)) + 1.0  # rounding left the bound a hair above the target
    rates = task.rates(float(found.rate[0]))
    seconds = R * float(task.seconds(I))
    return Choice(task.theorem, task.version, I, rates["gamma"], rates["eta"], int(R), seconds, float(found.total[0]))


def _unreachable(task: Task) -> str:
    name = find(task.theorem).locator
    endless = [symbol for symbol, value in task.values.items() if math.isinf(value)]
    if endless:
        return f"{name} bounds nothing where {' and '.join(endless)} is infinite; bound it, or plan by trial."
    if task.gamma_min is not None:
        return f"{name} does not reach the goal with gamma of at least {task.gamma_min:g}; lower gamma_min."
    probe = task.bound(1, 1.0)
    failed = [c for c in probe.conditions if "gamma" not in c.name and not np.all(c.holds)]
    reasons = " and ".join(f"{c.name} <= {c.formula}" for c in failed) or "the limit of gamma, which is 0"
    return f"{name} ({task.version}) admits no rates at these values; in the way is {reasons}."


def trace(task: Task, choice: Choice) -> tuple[Point, ...]:
    """The best for some of the I, the chosen one among them, as far as the goal is reached there."""
    steps = _candidates(task)
    most = min(int(steps[-1]), max(32, 16 * choice.I))
    some = np.unique(np.append(np.geomspace(1, most, _POINTS).round().astype(int), choice.I))
    found, _ = _height(task, some)
    keep = np.isfinite(found.total)
    some, rate, rounds = some[keep], found.rate[keep], np.maximum(np.ceil(found.rounds[keep]), 1.0)
    terms = np.array([np.broadcast_to(term.value, some.shape) for term in task.bound(some, rate, rounds).terms]).T
    seconds = rounds * task.seconds(some)
    gamma = rate if task.eta is not None else np.full(some.shape, task.gamma_min)
    rows = zip(some.tolist(), rounds.tolist(), gamma.tolist(), seconds.tolist(), terms.tolist(), strict=True)
    return tuple(Point(i, R, g, s, tuple(t)) for i, R, g, s, t in rows)
