"""The efficiency of local steps from the losses of one run in which their number changes.

After t local steps per worker, with E the efficiencies and d the offsets of the numbers of local steps H,

    log f(t) = phi(tau(t)) + d(H(t)) + noise,    d tau/dt = E(H(t)),    E = 1 and d = 0 for the reference.

tau counts the steps that were worth a step of the reference. phi is one smooth curve for all H: a penalised cubic
spline in log(tau + T/16). The offset is what drift adds to the loss at once, and gives back at once when H falls again.
For given efficiencies, smoothness and correlation of the noise everything else is linear, so that its marginal
likelihood is a function of a few numbers, whose maximum is sought.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from fedgauge.base.types import Floats, Integers

KNOTS = 6
"""Knots of the spline inside the run."""
LEFT_OUT = 1 / 32
"""The part of a run at its beginning that is not fitted."""
PRIOR, RISING, FREE = 0.8, 0.05, 0.08
"""Beforehand, log E is 0 with this deviation; it rises with H by no more than the last number, with the second one."""
SMOOTH = (4.0, 2.0)
"""The logarithm of the smoothing parameter beforehand, and its deviation."""
MODEL_ERROR, STRETCHED = 0.15, 0.15
"""The error of log slowdown that the model makes beyond noise, and what each factor of e adds by which the whole run is
longer than what was observed; both from the federations that the gauge was developed on."""
_ROUGH = 1e-3
"""No run follows the model more closely than this part of the deviation of its log losses, noise or not."""
_ALIKE = 0.95
"""The correlation of neighbouring records is not taken to be more than this."""
_DRAWS = 200
"""Draws from the posterior, from which errors are computed."""
_EYE = np.eye(KNOTS + 4)
"""The coefficients of each spline by itself."""
_WIDTH = 0.02
"""The step of the differences from which the curvature of the posterior is computed."""


class Observations(NamedTuple):
    """What a run shows.

    Attributes:
        taken: for each record, the local steps of a worker so far under each number of local steps; one row a record.
        under: for each record, the place of the number of local steps of the round before it.
        losses: f at the averaged model, above 0.
    """

    taken: Floats
    under: Integers
    losses: Floats

    @property
    def times(self) -> Floats:
        """The local steps before each record."""
        times: Floats = self.taken.sum(axis=1)
        return times


@dataclass(frozen=True)
class Fit:
    """The efficiencies that fit best, in the first row, and draws of what else is likely, in the others.

    Attributes:
        log_efficiencies: of every number of local steps but the reference.
        offsets: what drift adds to log f.
        log_slowdowns: of a whole run, offsets included; see :func:`fit`.
        noise: the standard deviation of log f around the curve.
        curve: steps of the reference, and log f after them.
    """

    log_efficiencies: Floats
    offsets: Floats
    log_slowdowns: Floats
    noise: float
    curve: tuple[Floats, Floats]


class _Solution(NamedTuple):
    """What is best for given efficiencies, smoothness and correlation."""

    cost: float  # minus the log posterior
    coefficients: Floats
    factor: Floats
    noise: float
    ends: tuple[float, float]


class _Model:
    """The marginal likelihood for one run, as a function of log E, the log of the smoothing, and the correlation."""

    def __init__(self, seen: Observations, horizon: float) -> None:
        fitted = seen.times >= LEFT_OUT * seen.times[-1]
        self.taken, under = seen.taken[fitted], seen.under[fitted]
        logs = np.log(seen.losses[fitted])
        self.mean = float(logs.mean())
        self.logs = logs - self.mean
        self.rough = (_ROUGH * float(self.logs.std())) ** 2 + 1e-18
        self.others = seen.taken.shape[1] - 1
        self.shift, self.horizon = float(seen.times[-1]) / 16, horizon
        self.drift = (under[:, None] == np.arange(1, self.others + 1)).astype(float)
        gaps = np.diff(self.taken.sum(axis=1))
        self.gaps = gaps / np.median(gaps)
        second = np.diff(np.eye(KNOTS + 4), 2, axis=0)
        self.penalty = second.T @ second
        k = self.others
        self.bounds = np.array([(-4.0, 2.0)] * k + [(-14.0, 14.0), (-5.0, 5.0)]).T
        slopes = (-0.05, -0.5)  # local steps that all count, and ones of which fewer and fewer do
        self.starts = [np.concatenate([slope * np.arange(1, k + 1), [SMOOTH[0], 0.0]]) for slope in slopes]

    def cost(self, theta: Floats) -> float:
        return self.solve(theta).cost

    def solve(self, theta: Floats) -> _Solution:
        k, number = self.others, len(self.logs)
        at = np.log(self.taken @ np.exp(np.concatenate([[0.0], theta[:k]])) + self.shift)
        ends = float(at[0]), float(at[-1])
        rows = np.hstack([_splines(at, *ends), self.drift])
        keep = (_ALIKE / (1 + math.exp(-theta[k + 1]))) ** self.gaps
        scale = np.concatenate([[1.0], 1 / np.sqrt(1 - keep**2)])
        X, y = rows * scale[:, None], self.logs * scale
        X[1:] -= (keep * scale[1:])[:, None] * rows[:-1]
        y[1:] -= keep * scale[1:] * self.logs[:-1]
        A = X.T @ X + 1e-9 * np.eye(X.shape[1])
        A[: KNOTS + 4, : KNOTS + 4] += math.exp(theta[k]) * self.penalty
        factor, b = cho_factor(A, lower=True)[0], X.T @ y
        coefficients = cho_solve((factor, True), b)
        rest = max(float(y @ y - b @ coefficients), self.rough * number)
        # A straight line and the offsets are held by neither the penalty nor a prior.
        degrees = max(number - 2 - k, 1)
        twice = degrees * math.log(rest / degrees) + 2 * float(np.log(np.diag(factor)).sum())
        twice -= (KNOTS + 2) * theta[k] + 2 * float(np.log(scale).sum())
        return _Solution(twice / 2 + self.prior(theta), coefficients, factor, math.sqrt(rest / degrees), ends)

    def prior(self, theta: Floats) -> float:
        """Minus the logarithm of how likely the numbers are beforehand."""
        k = self.others
        rising = np.maximum(np.diff(np.concatenate([[0.0], theta[:k]])) - FREE, 0.0)
        held = float((theta[:k] ** 2).sum() / PRIOR**2 + (rising**2).sum() / RISING**2)
        return float(held + ((theta[k] - SMOOTH[0]) / SMOOTH[1]) ** 2 + (theta[k + 1] / 2.0) ** 2) / 2

    def slowdowns(self, logs: Floats, coefficients: Floats, ends: tuple[float, float]) -> Floats:
        """log of the steps of a whole run over those in which the reference comes as far, for each other number."""
        curve, offsets = coefficients[: KNOTS + 4], coefficients[KNOTS + 4 :]
        steps = self.horizon * np.geomspace(1 / 16, 4.0, 257)
        reference = self.reference(steps, curve, ends)
        reached = _splines(np.log(self.horizon * np.exp(logs) + self.shift), *ends) @ curve + offsets
        return np.asarray(math.log(self.horizon) - np.interp(-reached, -reference, np.log(steps)))

    def reference(self, steps: Floats, curve: Floats, ends: tuple[float, float]) -> Floats:
        """log f after steps of the reference, up to a constant; it falls, and where it does not, noise has bent it."""
        return np.minimum.accumulate(_splines(np.log(steps + self.shift), *ends) @ curve)

    def covariance(self, peak: Floats) -> Floats:
        """The inverse of the curvature of the posterior at its peak, by differences."""
        low, high = self.bounds
        centre = np.clip(peak, low + 2 * _WIDTH, high - 2 * _WIDTH)
        moves = np.eye(len(peak)) * _WIDTH
        middle = self.cost(centre)
        sides = [self.cost(centre + each) + self.cost(centre - each) for each in moves]
        H = np.diag(sides) - 2 * middle * np.eye(len(peak))
        for i in range(len(peak)):
            for j in range(i):
                both = self.cost(centre + moves[i] + moves[j]) + self.cost(centre - moves[i] - moves[j])
                H[i, j] = H[j, i] = (both - sides[i] - sides[j] + 2 * middle) / 2
        values, vectors = np.linalg.eigh(H / _WIDTH**2)
        # Where the losses say nothing, the priors do.
        covariance: Floats = (vectors / np.maximum(values, 1 / SMOOTH[1] ** 2)) @ vectors.T
        return covariance


def _splines(at: Floats, low: float, high: float) -> Floats:
    """The cubic splines at some places; beyond the ends they go on as straight lines."""
    knots = np.concatenate([[low] * 3, np.linspace(low, high, KNOTS + 2), [high] * 3])
    inside, splines = np.clip(at, low, high), BSpline.construct_fast(knots, _EYE, 3)
    rows: Floats = splines(inside)
    beyond, step = at - inside, (high - low) * 1e-4
    for end, move, outside in ((low, step, beyond < 0), (high, -step, beyond > 0)):
        if outside.any():
            near = splines(np.array([end, end + move]))
            rows[outside] += beyond[outside, None] * (near[1] - near[0]) / move
    return rows


def model_error(observed: float) -> float:
    """The error of log slowdown beyond noise, where a part of the run was observed.

    >>> model_error(1.0), round(model_error(0.5), 3)
    (0.15, 0.254)
    """
    return MODEL_ERROR + STRETCHED * max(-math.log(observed), 0.0)


def fit(seen: Observations, horizon: float | None = None, seed: int = 0) -> Fit:
    """Fit the efficiencies to the records of a run; the first number of local steps is the reference.

    Args:
        seen: the records.
        horizon: the length of the whole runs whose slowdown is wanted, in local steps; as long as the run by default.
            The slowdown is that length over the steps in which the reference reaches the same loss.
        seed: of the draws from which errors are computed.

    >>> under = np.tile([0, 0, 1, 1], 16)
    >>> taken = np.cumsum(64.0 * (under[:, None] == [0, 1]), axis=0)
    >>> losses = 2.0 / (1 + (taken @ [1.0, 0.5]) / 300)
    >>> round(float(np.exp(fit(Observations(taken, under, losses)).log_efficiencies[0, 0])), 2)
    0.5
    """
    model = _Model(seen, float(seen.times[-1]) if horizon is None else horizon)
    k, bounds = model.others, list(zip(*model.bounds, strict=True))
    cost: Callable[[Floats], float] = model.cost
    results = [minimize(cost, start, method="L-BFGS-B", bounds=bounds) for start in model.starts]
    peak = min(results, key=lambda each: float(each.fun)).x
    draws = np.random.default_rng(seed)
    moves = draws.normal(size=(_DRAWS, len(peak))) @ np.linalg.cholesky(model.covariance(peak)).T
    rows = []
    for number, theta in enumerate([peak, *np.clip(peak + moves, *model.bounds)]):
        best = model.solve(theta)
        coefficients = best.coefficients
        if number:
            away = solve_triangular(best.factor, draws.normal(size=len(coefficients)), lower=True, trans="T")
            coefficients = coefficients + best.noise * away
        slowdowns = model.slowdowns(theta[:k], coefficients, best.ends)
        rows.append((theta[:k], coefficients[KNOTS + 4 :], slowdowns))
    efficiencies, offsets, slowdown_rows = (np.array(column) for column in zip(*rows, strict=True))
    best, along = model.solve(peak), np.linspace(0.0, float(seen.times[-1]), 129)
    curve = along, model.mean + model.reference(along, best.coefficients[: KNOTS + 4], best.ends)
    return Fit(efficiencies, offsets, slowdown_rows, best.noise, curve)
