"""Tuned bounds: the best gamma at a fixed eta, and the best I under a budget.

A bound must not be tuned over gamma and eta together without a floor under gamma. Every term that local steps cause
shrinks with gamma at a fixed product gamma eta, so that the best gamma would be 0: FedAvg turns into mini-batch SGD
with rate gamma eta I, and L_h drops out of the bound. That is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.errors import InputError, positive
from fedgauge.theory import find
from fedgauge.theory.base import Theorem
from fedgauge.theory.inputs import Array, check_values
from fedgauge.values import Bound, Number, Value, Version

_GRID = 97  # points of the first search, which finds the right valley where there are two
_DEPTH = 1e-24  # how far below the largest rate it looks
_GOLDEN = (np.sqrt(5.0) - 1) / 2
_STEPS = 48  # each shortens the interval by 0.618; together by 1e-10, below what a minimum can be told apart


@dataclass(frozen=True)
class Tuned(Value):
    """The best rates (and local steps) that a search found, and the bound there.

    Attributes:
        gamma: the local rate.
        eta: the global rate.
        bound: the bound at the choice; its conditions hold.
        I: local steps a round, where they were chosen.
        R: rounds that the budget affords.
    """

    gamma: Number
    eta: Number
    bound: Bound
    I: Number | None = None  # noqa: E741
    R: Number | None = None


def _plain(value: Number) -> Number:
    return float(value) if np.ndim(value) == 0 else value


def minimise(value: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Minimise over each interval [low, high] at once, on a log scale: a grid, then golden sections about its best.

    >>> found = minimise(lambda x: (x - 2.0) ** 2, np.array([0.1, 3.0]), np.array([10.0, 10.0]))
    >>> found.round(6).tolist()
    [2.0, 3.0]
    """
    low, high = np.broadcast_arrays(low, high)
    width = np.log(high / low)

    def at(share: Array) -> Array:
        # The upper end must come out exactly: one ulp above it is inadmissible.
        return np.where(share >= 1, high, np.minimum(low * np.exp(share * width), high))

    shares = np.linspace(0, 1, _GRID)
    best, lowest = np.zeros(low.shape), np.full(low.shape, np.inf)
    for share in shares:
        height = value(at(np.full(low.shape, share)))
        better = height <= lowest
        best, lowest = np.where(better, share, best), np.where(better, height, lowest)
    left, right = np.maximum(best - shares[1], 0.0), np.minimum(best + shares[1], 1.0)
    for _ in range(_STEPS):
        one, two = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        smaller = value(at(one)) <= value(at(two))
        left, right = np.where(smaller, left, one), np.where(smaller, two, right)
    for share in ((left + right) / 2, np.zeros(low.shape), np.ones(low.shape)):
        height = value(at(share))
        best, lowest = np.where(height < lowest, share, best), np.minimum(height, lowest)
    return at(best)


def refuse_free_eta(theorem: Theorem) -> InputError:
    """The mistake of leaving both rates free."""
    return InputError(
        f"{theorem.name} cannot be tuned with eta free and no floor under gamma: as gamma -> 0 at a fixed gamma eta "
        "every term of the local steps, and L_h with them, drops out of the bound; fix eta or give gamma_min."
    )


def _largest_eta(theorem: Theorem, version: Version, values: dict[str, Any], gamma: Array) -> Array:
    """Find by bisection the largest admissible eta; the conditions only ever limit it from above."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()), gamma.shape)

    def ok(log: Array) -> Any:
        return theorem.evaluate(version, **{**values, "gamma": gamma, "eta": np.exp(log)}).admissible

    low, high = np.full(shape, -200.0), np.full(shape, 200.0)
    if not np.all(ok(low)):
        raise InputError(
            f"gamma_min must be admissible for some eta, not {gamma.max().item()!r}; {theorem.name} limits gamma."
        )
    if np.any(ok(high)):
        raise InputError(f"{theorem.name} limits no eta at these values, so that there is no best one; fix eta.")
    for _ in range(64):
        middle = (low + high) / 2
        fine = ok(middle)
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.asarray(np.exp(low), dtype=float)


def _largest_gamma(theorem: Theorem, version: Version, probe: Bound) -> Array:
    top = np.asarray(probe.gamma_max, dtype=float)
    if np.any(np.isinf(top)):
        raise InputError(
            f"{theorem.name} sets gamma no limit at these values, so that there is no best one; check L_g."
        )
    if np.any(top <= 0):
        failed = [c for c in probe.conditions if "gamma" not in c.name and not np.all(c.holds)]
        failed += [c for c in probe.conditions if "gamma" in c.name and np.any(np.equal(c.limit, 0))]
        raise InputError(
            f"{theorem.name} ({version}) admits no gamma at these values; in the way is "
            f"{' and '.join(f'{c.name} <= {c.formula}' for c in failed)}."
        )
    return np.broadcast_to(top, np.broadcast_shapes(np.shape(probe.total), top.shape))


def _total(theorem: Theorem, version: Version, values: dict[str, Any], gamma: Number, eta: Number) -> Array:
    return np.asarray(theorem.evaluate(version, **{**values, "gamma": gamma, "eta": eta}).total)


def best_gamma(
    name: str,
    version: Version = "corrected",
    eta: Number | None = 1.0,
    gamma_min: float | None = None,
    **values: Any,
) -> Tuned:
    """Find the admissible gamma with the least bound at a fixed eta.

    With ``eta=None`` both rates are free: the best gamma is then ``gamma_min``, and eta is searched.

    Args:
        name: the theorem.
        version: its version.
        eta: the global rate, or None to have it chosen.
        gamma_min: a floor under gamma; needed where eta is free.
        **values: the theorem's other symbols; arrays broadcast, and each point is tuned by itself.

    >>> values = dict(F=1, I=4, R=1000, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5)
    >>> tuned = best_gamma("nonconvex", **values)
    >>> round(tuned.gamma, 4), round(tuned.bound.total, 4)
    (0.0134, 0.115)
    >>> best_gamma("nonconvex", eta=None, **values)
    Traceback (most recent call last):
    fedgauge.errors.InputError: nonconvex cannot be tuned with eta free and no floor under gamma: as gamma -> 0 ...
    """
    theorem = find(name)
    if "gamma" in values:
        raise InputError("gamma is what is being tuned; leave it out, or evaluate the theorem at it.")
    floor = None if gamma_min is None else np.asarray(positive("gamma_min", gamma_min))
    probe = theorem.evaluate(version, **{**values, "gamma": 1.0, "eta": 1.0 if eta is None else eta})
    gap = "d0" if "d0" in theorem.needs else "F"
    if not np.all((np.asarray(values[gap]) > 0) & np.isfinite(values[gap])):
        raise InputError(f"{gap} must be above 0 and finite to tune gamma, not {values[gap]!r}; there is no best one.")
    limited = [condition.name for condition in probe.conditions]
    # Where no condition is on gamma alone only the product of the rates counts, and eta = 1 loses nothing.
    fixes_eta = "|eta - 1|" in limited or "gamma" not in limited
    if eta is None and not fixes_eta:
        if floor is None:
            raise refuse_free_eta(theorem)
        top = _largest_eta(theorem, version, values, floor)
        chosen = minimise(lambda rate: _total(theorem, version, values, floor, rate), top * _DEPTH, top)
        return Tuned(
            float(floor), _plain(chosen), theorem.evaluate(version, **{**values, "gamma": floor, "eta": chosen})
        )

    rate = 1.0 if eta is None else eta
    top = _largest_gamma(theorem, version, probe)
    low = top * _DEPTH if floor is None else floor
    if np.any(low > top):
        raise InputError(f"gamma_min must be admissible, at most {top.min().item():.6g}, not {gamma_min!r}.")
    chosen = minimise(lambda gamma: _total(theorem, version, values, gamma, rate), low, top)
    return Tuned(_plain(chosen), rate, theorem.evaluate(version, **{**values, "gamma": chosen, "eta": rate}))


def best_local_steps(
    name: str,
    version: Version = "corrected",
    *,
    budget: float,
    communication: float = 0.0,
    step: float = 1.0,
    candidates: Sequence[int] | None = None,
    eta: float | None = 1.0,
    gamma_min: float | None = None,
    **values: Any,
) -> Tuned:
    """Find the local steps I, and the best gamma for them, with the least bound under a budget.

    A round costs ``communication + I * step``, and as many whole rounds are run as the budget affords. As it stands
    that is R I <= budget gradients a worker.

    Args:
        name: the theorem.
        version: its version.
        budget: what all rounds may cost together.
        communication: the cost of a round's communication.
        step: the cost of a local step.
        candidates: the I to consider; by default every one that leaves a round, up to 10,000.
        eta: the global rate, or None to have it chosen (with ``gamma_min``).
        gamma_min: a floor under gamma.
        **values: the theorem's other symbols, numbers all.

    >>> values = dict(F=1, N=8, sigma2=100, zeta2=1, L_g=1, L_h=0.1)
    >>> tuned = best_local_steps("nonconvex", budget=1000, communication=10, **values)
    >>> tuned.I, tuned.R
    (12, 45)
    """
    for name_taken in ("I", "R"):
        if name_taken in values:
            raise InputError(f"{name_taken} is chosen under the budget; leave it out.")
    cost, comm, total = positive("step", step), float(communication), positive("budget", budget)
    if not (np.isfinite(comm) and comm >= 0):
        raise InputError(f"communication must be a finite number of at least 0, not {communication!r}.")
    if candidates is None:
        most = int(min((total - comm) / cost * (1 + 1e-12), 10_000))
        steps = np.arange(1, most + 1)
    else:
        steps = np.asarray(candidates)
    check_values({"I": steps} if steps.size else {})
    rounds = np.floor(total / (comm + steps * cost) * (1 + 1e-12))
    steps, rounds = steps[rounds >= 1], rounds[rounds >= 1]
    if not steps.size:
        raise InputError(
            f"budget must pay for one round, {comm + cost:g} at the least, not {budget!r}; raise it or try fewer steps."
        )
    tuned = best_gamma(name, version, eta, gamma_min, I=steps, R=rounds, **values)
    best = int(np.argmin(tuned.bound.total))
    I, R = int(steps[best]), int(rounds[best])  # noqa: E741
    gamma = float(np.broadcast_to(tuned.gamma, steps.shape)[best])
    rate = float(np.broadcast_to(tuned.eta, steps.shape)[best])
    bound = find(name).evaluate(version, **{**values, "I": I, "R": R, "gamma": gamma, "eta": rate})
    return Tuned(gamma, rate, bound, I, R)
