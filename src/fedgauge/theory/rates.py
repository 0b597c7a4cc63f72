"""The best rate of a bound for given local steps: the one search that tuning, planning and the region map share.

The free rate x is gamma at a fixed eta, or eta where gamma stands at a floor. How it is found depends on what the
theorem declares (:meth:`~fedgauge.theory.base.Theorem.shape_of`). With ``powers`` the bound is
A/(x R) + a + b x + c x^2, where A, a, b and c depend on I, and the best rate has a closed form:

- to reach eps soonest, R = A/(x (eps - a - b x - c x^2)) is least at x = r/(b + sqrt(b^2 + 3 c r)), r = eps - a;
- within R rounds, the bound is least where 2 c x^3 + b x^2 = A/R.

Both are cut off at the largest admissible rate. Every other bound is searched numerically.

Gamma and eta must not be free together without a floor under gamma. Every term that local steps cause shrinks with
gamma at a fixed product gamma eta, so that the best gamma would be 0: FedAvg turns into mini-batch SGD with the rate
gamma eta I, and L_h drops out of the bound. That is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.theory.base import Theorem, largest_factor
from fedgauge.theory.inputs import RateShape
from fedgauge.values import Bound, Number, Version

_DEPTH = 1e-24  # how far below the largest rate is searched
_GRIDS = (97, *[17] * 7)  # points of each grid; the first finds the right valley where there are two


@dataclass(frozen=True)
class FreeRate:
    """A bound whose rate is sought.

    Attributes:
        theorem: whose bound it is.
        version: of the theorem.
        values: every symbol but I, R and the rates; arrays broadcast, and each point is searched separately.
        eta: the global rate; None where it is the free one, and gamma is then ``gamma_min``.
        gamma_min: a floor under gamma.
    """

    theorem: Theorem
    version: Version
    values: Mapping[str, Any]
    eta: Number | None = 1.0
    gamma_min: float | None = None

    def rates(self, rate: Number) -> dict[str, Any]:
        """Return gamma and eta, of which one is the free rate."""
        if self.eta is not None:
            return {"gamma": rate, "eta": self.eta}
        return {"gamma": self.gamma_min, "eta": rate}

    def bound(self, steps: Number, rate: Number, rounds: Number = 1.0) -> Bound:
        """Evaluate the theorem at a rate."""
        all_values = {**self.values, "I": steps, "R": np.asarray(rounds, dtype=float), **self.rates(rate)}
        return self.theorem.evaluate(self.version, **all_values)

    @property
    def shape(self) -> RateShape | None:
        """How the bound depends on the rate and on the rounds."""
        return self.theorem.shape_of(self.version)


class BestRate(NamedTuple):
    """For each I the best rate, the rounds (not rounded up) and the bound after them; infinite where there is none."""

    rate: Floats
    rounds: Floats
    total: Floats


def refuse_free_rates(theorem: Theorem) -> InputError:
    """The mistake of leaving both rates free."""
    return InputError(
        f"{theorem.name} cannot be tuned with eta free and no lower limit for gamma: as gamma -> 0 at a fixed gamma"
        " eta every term of the local steps, and L_h with them, drops out of the bound; fix eta or give gamma_min."
    )


def minimise(value: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Minimise over each interval [low, high] at once, on a log scale.

    Each grid lies within two cells of the best point of the grid before. All points of a grid are one evaluation:
    ``value`` gets an array with one more axis in front.

    >>> least = minimise(lambda x: (x - 2.0) ** 2, np.array([0.1, 3.0]), np.array([10.0, 10.0]))
    >>> least.round(6).tolist()
    [2.0, 3.0]
    """
    low, high = np.broadcast_arrays(np.asarray(low, dtype=float), np.asarray(high, dtype=float))
    left, right = np.zeros(low.shape), np.ones(low.shape)
    width, best = np.log(high / low), high

    def pick(grid: Floats, at: Any) -> Floats:
        return np.asarray(np.take_along_axis(grid, at[None], axis=0)[0])

    for points in _GRIDS:
        shares = np.linspace(0, 1, points).reshape(points, *[1] * low.ndim)
        share = left + (right - left) * shares
        # The upper end must come out exactly: one ulp above it is inadmissible.
        rate = np.where(share >= 1, high, np.minimum(low * np.exp(share * width), high))
        height = value(rate)
        # Of equal heights the largest rate is taken.
        at = points - 1 - np.argmin(np.where(np.isnan(height), np.inf, height)[::-1], axis=0)
        best = pick(rate, at)
        left, right = pick(share, np.maximum(at - 1, 0)), pick(share, np.minimum(at + 1, points - 1))
    return best


def _largest_eta(free: FreeRate, steps: Number) -> Floats:
    """Find by bisection the largest admissible eta, 0 where none is; the conditions only limit it from above."""
    shape = np.shape(free.bound(steps, 1.0).total)

    def admits(log: Floats) -> Any:
        return free.bound(steps, np.exp(log)).admissible

    low, high = np.full(shape, -200.0), np.full(shape, 200.0)
    some, endless = admits(low), admits(high)
    for _ in range(64):
        middle = (low + high) / 2
        fine = admits(middle)
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.where(endless, np.inf, np.where(some, np.exp(low), 0.0))


def limits(free: FreeRate, steps: Number) -> tuple[Floats, Floats]:
    """Return the least and the largest rate to consider for each I; the largest is 0 where none is admissible."""
    probe = free.bound(steps, 1.0)
    shape = np.broadcast_shapes(np.shape(probe.total), np.shape(probe.gamma_max))
    if free.eta is not None:
        top = np.asarray(probe.gamma_max)
        low = np.asarray(free.gamma_min or 0.0)
        top = np.where(low > top, 0.0, top)
    elif free.shape in (None, "root"):  # its limits of gamma may depend on eta
        top, low = _largest_eta(free, steps), np.asarray(0.0)
    else:
        fine = [condition.holds for condition in probe.conditions if condition.name != "gamma eta"]
        top = np.where(np.all(np.broadcast_arrays(*fine), axis=0) if fine else True, 1.0, 0.0)
        top = np.where(top > 0, largest_factor(probe.gamma_eta_max, free.gamma_min or 1.0), 0.0)
        low = np.asarray(0.0)
    if np.isinf(top).any():
        raise InputError(
            f"{free.theorem.name} sets no limit on the rate at these values, so there is no best one; check L_g."
        )
    top = np.broadcast_to(top, shape)
    return np.maximum(np.minimum(low, top), top * _DEPTH), top


def _coefficients(free: FreeRate, steps: Number, shape: tuple[int, ...]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return A, a, b, c of A/(x R) + a + b x + c x^2 for each I; a term's power of x shows when x is doubled."""
    sums: dict[int, Floats] = {power: np.zeros(shape) for power in (-1, 0, 1, 2)}
    for one, two in zip(free.bound(steps, 1.0).terms, free.bound(steps, 2.0).terms, strict=True):
        first, second = np.broadcast_arrays(one.value, two.value)
        shown = (first > 0) & np.isfinite(second)
        power = round(float(np.log2((second[shown] / first[shown])[0]))) if shown.any() else 0
        sums[power] = np.asarray(sums[power] + first)
    return sums[-1], sums[0], sums[1], sums[2]


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def needed_rounds(free: FreeRate, steps: Number, rate: Floats, eps: float) -> Floats:
    """Return the rounds after which the bound is eps, infinite where it never is."""
    if free.shape is None:
        raise InputError(
            f"{free.theorem.name} does not say after how many rounds its bound is reached; give a budget instead."
        )
    if free.shape == "root":
        assert free.theorem.rounds_to is not None, f"{free.theorem.name} does not say how many rounds it takes"
        v = free.theorem.prepare(free.version, {**free.values, "I": steps, "R": 1.0, **free.rates(rate)})
        return free.theorem.rounds_to(free.version, v, eps)
    first, errors = np.zeros(np.shape(rate)), np.zeros(np.shape(rate))
    for term in free.bound(steps, rate).terms:
        if "R" in term.symbols:
            first = np.asarray(first + term.value)
        else:
            errors = np.asarray(errors + term.value)
    room = eps - errors
    if free.shape == "geometric":
        assert free.theorem.contraction is not None, f"{free.theorem.name} declares no contraction"
        everything = {**free.values, "I": steps, **free.rates(rate)}
        taken = free.theorem.contraction(free.version, {name: np.asarray(item) for name, item in everything.items()})
        grown = -np.log1p(-np.minimum(taken, 1.0))
        rounds = np.log1p(first * np.expm1(grown) / room) / grown
    else:
        rounds = first / room
    return np.where(room > 0, rounds, np.inf)


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _least(s: Floats, b: Floats, c: Floats) -> Floats:
    """Return where 2 c x^3 + b x^2 = s; infinite where b = c = 0."""
    # One of the two parts alone is s here; where s and a part are both 0, that part is ignored.
    high = np.fmin(np.sqrt(s / b), np.cbrt(s / (2 * c)))
    high = np.where(np.isnan(high), np.inf, high)
    low = high / 2  # and here the two together are below s
    for _ in range(54):
        middle = (low + high) / 2
        above = middle * middle * (2 * c * middle + b) > s
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def best_rate(free: FreeRate, steps: Number, *, rounds: Number | None = None, target: float | None = None) -> BestRate:
    """Find the best rate for each I.

    Args:
        free: the bound.
        steps: the local steps I.
        rounds: the rounds after which the bound is to be least; None asks for the fewest rounds to the target.
        target: the bound to reach.

    >>> from fedgauge.theory import find
    >>> values = dict(F=1, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5)
    >>> best_rate(FreeRate(find("nonconvex"), "corrected", values), 4, rounds=1000).rate.round(4).tolist()
    0.0134
    """
    low, top = limits(free, steps)
    shape = np.broadcast_shapes(top.shape, () if rounds is None else np.shape(rounds))
    low, top = np.broadcast_to(low, shape), np.broadcast_to(top, shape)
    allowed = top > 0
    if free.shape == "powers":
        A, a, b, c = _coefficients(free, steps, top.shape)
        if rounds is None:
            room = np.maximum((target or 0.0) - a, 0.0)
            best = np.where(room > 0, room / (b + np.sqrt(b * b + 3 * c * room)), 0.0)
        else:
            best = _least(A / rounds, b, c)
        rate = np.where(allowed, np.clip(best, low, top), 1.0)
    else:

        def height(rate: Floats) -> Floats:
            if rounds is None:
                return needed_rounds(free, steps, rate, target or 0.0)
            return np.asarray(free.bound(steps, rate, rounds).total)

        rate = minimise(height, np.where(allowed, low, 0.5), np.where(allowed, top, 1.0))
    needed: Any = rounds
    if target is not None:
        needed = np.where(allowed, needed_rounds(free, steps, rate, target), np.inf)
    spent = np.maximum(np.ceil(needed), 1.0) if rounds is None else rounds
    finite = np.isfinite(spent)
    total = np.asarray(free.bound(steps, rate, np.where(finite, spent, 1.0)).total)
    return BestRate(rate, np.where(allowed, needed, np.inf), np.where(allowed & finite, total, np.inf))
