"""How far local steps carry the models: four sums over the steps of a round, and the largest rate that they allow.

With y = gamma L_g, everything that the ``star`` versions need about a round of I steps are two polynomials in y,

    E(y) = sum_{k<I} (1+y)^k,    rho(y) = sum_{0<j<=I} (sqrt(j) - sqrt(j-1)) (1+y)^(I-j),

their slopes, and E(y) - I and rho(y) - sqrt(I), which are small where y is. Each is summed as a series in z = y I with
positive coefficients, so that nothing cancels however small gamma is. The admissible rates have z below 1.4 for long
rounds, and for short ones the series ends by itself. The coefficients of E are binomial; those of rho are repeated sums
of square roots, kept in a table up to ``TABLE`` steps. Beyond, the sums are at most the integrals that they approach.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import recordable

TABLE = 16_384
"""The longest round for which the sums of square roots are exact; beyond, they are less than 0.02% too large."""

_TERMS = 48  # enough for z = 4 to the last digit; where the series is long, z is below 1.4
_SHORT = 24  # up to this many steps every term is summed
_BLOCK = 8_192  # points that are summed at once, so that they stay in the processor's cache
_BELOW = 1 - 1e-13  # limits are rounded down by this much, so that what is below them certainly is


def _count(I: Floats, y: Floats) -> int:  # noqa: E741
    """Return after how many terms the rest of every series is below the last digit."""
    longest = int(min(np.max(I, initial=1.0), _TERMS + 1.0)) - 1
    z, size, terms = float(np.max(np.where(I > _SHORT, I * y, 0.0), initial=0.0)), 1.0, _SHORT
    for p in range(1, _SHORT):
        size *= z / p
    while terms < longest and size > 1e-18:
        size *= z / terms
        terms += 1
    return max(min(terms, longest), 1)


@lru_cache(maxsize=8)
def _roots(size: int) -> Floats:
    """Return, for p = 1.. and every I up to ``size``, the p-fold sum of square roots over I^(p + 1/2).

    The last column is what they approach, and stay below: the p-fold integral of the square root.
    """
    steps = np.arange(size + 1, dtype=np.longdouble)
    scale, sums, limit, rows = np.sqrt(steps), np.sqrt(steps), 1.0, []
    for p in range(1, _TERMS + 1):
        sums = np.concatenate([[0.0], np.cumsum(sums)[:-1]])
        scale = scale * steps
        limit /= p + 0.5
        rows.append(np.append(sums[1:] / scale[1:], limit).astype(float))
    return np.array(rows)


def _size(I: Floats) -> int:  # noqa: E741
    """A power of two that is at least every I, so that few tables are made."""
    return 1 << (max(int(min(np.max(I, initial=1.0), TABLE)) - 1, 1)).bit_length()


def _sums(I: Floats, y: Floats, table: Floats) -> tuple[Floats, Floats, Floats, Floats]:  # noqa: E741
    at = np.where(table.shape[1] > I, I - 1, table.shape[1] - 1).astype(int)
    z, part, power = I * y, I * (I - 1) / 2, np.ones(I.shape)
    model, model_slope = np.zeros(I.shape), np.zeros(I.shape)
    noise, noise_slope = np.zeros(I.shape), np.zeros(I.shape)
    for p in range(1, _count(I, y) + 1):
        model += part
        model_slope += p * part
        root = table[p - 1][at] * power
        noise += root
        noise_slope += p * root
        part = part * (y * ((I - p - 1) / (p + 2)))
        power = power * z
    step = np.sqrt(I)
    return y * model, model_slope, step * z * noise, step * I * noise_slope


def growths(I: Any, y: Any) -> tuple[Any, Any, Any, Any]:  # noqa: E741
    """Return E(y) - I, E'(y), rho(y) - sqrt(I) and rho'(y); at y = 0 the last is the sum of sqrt(k) over k < I.

    >>> [round(float(found), 6) for found in growths(np.array(3.0), np.array(0.5))]
    [1.75, 4.0, 1.457107, 3.414214]
    """
    for argument in (I, y):
        if hasattr(argument, "record_call"):
            names = ("model_growth", "model_growth_slope", "noise_growth", "noise_growth_slope")
            return tuple(argument.record_call(name, I, y) for name in names)
    steps, growth = np.broadcast_arrays(np.asarray(I, dtype=float), np.asarray(y, dtype=float))
    flat_steps, flat, table = steps.ravel(), growth.ravel(), _roots(_size(steps))
    out = np.empty((4, flat.size))
    for first in range(0, flat.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        out[:, part] = _sums(flat_steps[part], flat[part], table)
    return tuple(out.reshape(4, *growth.shape))


def _solve(I: Floats, ratio: Floats) -> Floats:  # noqa: E741
    """Newton's method from above: E is convex, so that it only comes down to the root."""
    with np.errstate(divide="ignore"):
        y = np.where(I > 1, 2 * ratio / np.maximum(I - 1, 1), np.inf)
    live = I > 1
    for _ in range(64):
        here = np.where(live, y, 0.0)
        grown, slope = growths(I, here)[:2]
        step = (grown / I - ratio) / np.where(live, slope / I, 1.0)
        y = np.where(live, y - np.maximum(step, 0.0), y)
        if not np.any(live & (step > 1e-15 * y)):
            break
    return np.asarray(y * _BELOW)


@lru_cache(maxsize=8)
def _doubling(size: int) -> Floats:
    return _solve(np.arange(1.0, size + 1), np.ones(size))


@recordable
def growth_limit(I: Floats, ratio: Floats) -> Floats:  # noqa: E741
    """Return the largest y at which E(y) is at most 1 + ratio times I; infinite for I = 1, where E is 1.

    >>> growth_limit(np.array([1.0, 2.0, 3.0]), np.array(1.0)).round(9).tolist()  # 3 y + y^2 = 3 at the last
    [inf, 2.0, 0.791287847]
    """
    steps, allowed = np.asarray(I, dtype=float), np.asarray(ratio, dtype=float)
    if allowed.ndim == 0 and allowed == 1 and np.max(steps, initial=1.0) <= TABLE:
        table = _doubling(_size(steps))
        return np.asarray(table[steps.astype(int) - 1])
    if allowed.ndim == 0 and steps.size > 1:  # many points share few I
        every, at = np.unique(steps, return_inverse=True)
        return np.asarray(_solve(every, np.full(every.shape, float(allowed)))[at].reshape(steps.shape))
    return _solve(*np.broadcast_arrays(steps, allowed))


def overshoot_limit(eta: Floats, I: Floats) -> Floats:  # noqa: E741
    """Return the largest y at which eta ((1+y)^I - 1) is at most 2: beyond, a step may overshoot.

    >>> float(overshoot_limit(np.array(1.0), np.array(1.0)).round(9))
    2.0
    """
    return np.expm1(np.log1p(2 / eta) / I) * _BELOW
