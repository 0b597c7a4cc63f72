"""Objectives that are no quadratics: piecewise quadratic in one dimension, with noise that depends on the state.

Each F_i' is continuous and piecewise linear, with kinks at knots that the workers share. A stochastic gradient has two
values: the noise is a with probability q and -a q/(1-q) otherwise, so that its mean is 0 and its variance a^2 q/(1-q),
where a and q depend on the worker and on the piece that its model is on. A run has finitely many outcomes, and all of
them are followed, so that every expectation is exact. Participation is enumerated too.

The constants: L_g is the largest slope of f' in absolute value and L_tilde that of any F_i'. For L_h, the mean of
F_i'(x_i) less f'(xbar) is the mean of (s_i - c) (x_i - xbar), where s_i is a mean slope of F_i' and c is free, so that
the largest standard deviation of slopes serves, each taken from one piece: it is at a corner of the box of slopes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.federation.participation import Sampling
from fedgauge.theory import Theorem
from fedgauge.values import Version
from fedgauge_verification.check import ROUNDING, BoundCheck, largest_admissible, total_with_gap

MOST_OUTCOMES = 20_000
"""Runs with more outcomes are shortened."""


def covers(theorem: Theorem) -> bool:
    """Whether a theorem speaks of such objectives: those about FedAvg on smooth ones do."""
    return theorem.objectives == "smooth" and theorem.algorithm == "fedavg" and theorem.quantity.measure == "grad2"


@dataclass(frozen=True)
class PiecewiseProblem:
    """A federation in one dimension that starts at 0, and how it is run.

    Attributes:
        knots: where the slopes change, in ascending order.
        slopes: of each worker's gradient on each piece.
        gradients: of each worker at 0.
        deviations: the standard deviation of the noise, for each worker and piece.
        odds: the probability q of the first value of the noise, for each worker and piece.
        I: local steps.
        R: rounds.
        M: participants.
        eta: global rate.
        share: gamma as a share of the largest that the version under test admits.
    """

    knots: Floats
    slopes: Floats
    gradients: Floats
    deviations: Floats
    odds: Floats
    I: int = 2  # noqa: E741
    R: int = 2
    M: int = 1
    eta: float = 1.0
    share: float = 1.0

    def gradient(self, x: Floats, worker: int) -> Floats:
        """Return F_i' at many models."""
        found: Floats = self.gradients[worker] + self._integral(x, self.slopes[worker])
        return found

    def mean_gradient(self, x: Floats) -> Floats:
        """Return f' at many models."""
        found: Floats = self.gradients.mean() + self._integral(x, self.slopes.mean(axis=0))
        return found

    def _integral(self, x: Floats, slopes: Floats) -> Floats:
        found: Floats = slopes[0] * x
        for knot, step in zip(self.knots, np.diff(slopes), strict=True):
            # What a kink adds to the gradient beyond it, less what it adds at 0: no difference of larger numbers.
            found = found + step * (np.maximum(x - knot, 0.0) if knot >= 0 else np.maximum(x, knot))
        return found

    def loss_parts(self, x: Floats) -> Floats:
        """Return what f(x) - f(0) adds up, one part a row."""
        slopes = self.slopes.mean(axis=0)
        parts = [self.gradients.mean() * x, slopes[0] * x * x / 2]
        for knot, step in zip(self.knots, np.diff(slopes), strict=True):
            if knot >= 0:
                parts.append(step * np.maximum(x - knot, 0.0) ** 2 / 2)
            else:  # its integral from 0: x^2/2 up to the kink, and beyond it a line
                parts.append(step * np.where(x > knot, x * x / 2, knot * (x - knot / 2)))
        return np.array(parts)

    def noise(self, x: Floats, worker: int) -> tuple[Floats, Floats, Floats]:
        """Return the two values of the noise and the probability of the first."""
        piece = np.searchsorted(self.knots, x)
        q, deviation = self.odds[worker][piece], self.deviations[worker][piece]
        root = np.sqrt((1 - q) / q)
        return deviation * root, -deviation / root, q

    def constants(self) -> dict[str, float]:
        """Return L_g, L_h, L_tilde and sigma2."""
        corners = np.array(list(itertools.product(*([row.min(), row.max()] for row in self.slopes))))
        return {
            "L_g": float(np.abs(self.slopes.mean(axis=0)).max()),
            "L_h": float(corners.std(axis=1).max()),
            "L_tilde": float(np.abs(self.slopes).max()),
            "sigma2": float((self.deviations**2).max()),
        }


class Outcomes(NamedTuple):
    """Models with their probabilities, one row for each global model that they come from."""

    models: Floats
    weights: Floats


def _step(problem: PiecewiseProblem, held: Outcomes, worker: int, gamma: float) -> Outcomes:
    """Every outcome of one local step of one worker: the first value of the noise everywhere, then the second."""
    x = held.models
    first, second, q = problem.noise(x, worker)
    slope = problem.gradient(x, worker)
    moved = np.concatenate([x - gamma * (slope + first), x - gamma * (slope + second)], axis=1)
    return Outcomes(moved, np.concatenate([held.weights * q, held.weights * (1 - q)], axis=1))


def _local(problem: PiecewiseProblem, x: Floats, worker: int, gamma: float) -> tuple[Outcomes, list[Floats]]:
    """Every outcome of a worker's steps from global models, and E|F_i' - f'|^2 before each of them."""
    held, apart = Outcomes(x[:, None], np.ones((len(x), 1))), []
    for _ in range(problem.I):
        off = problem.gradient(held.models, worker) - problem.mean_gradient(held.models)
        apart.append(np.sum(held.weights * off * off, axis=1))
        held = _step(problem, held, worker, gamma)
    return held, apart


def drawn(sampling: Sampling, N: int, M: int) -> list[tuple[tuple[int, ...], Floats, float]]:
    """Every way to draw participants: the workers that run, their weights in the mean, and the probability."""
    if sampling == "full":
        return [(tuple(range(N)), np.full(N, 1 / N), 1.0)]
    if sampling == "without-replacement":
        every = list(itertools.combinations(range(N), M))
        return [(chosen, np.full(M, 1 / M), 1 / len(every)) for chosen in every]
    draws = list(itertools.product(range(N), repeat=M))
    if sampling == "with-replacement":
        return [(chosen, np.full(M, 1 / M), 1 / len(draws)) for chosen in draws]
    once = [tuple(dict.fromkeys(chosen)) for chosen in draws]
    return [
        (runs, np.array([chosen.count(worker) / M for worker in runs]), 1 / len(draws))
        for runs, chosen in zip(once, draws, strict=True)
    ]


def _round(problem: PiecewiseProblem, sampling: Sampling, x: Floats, gamma: float) -> tuple[Outcomes, Floats]:
    """Every outcome of a round from global models, and the workers' mean of E|F_i' - f'|^2 before each step."""
    N = len(problem.slopes)
    runs = [_local(problem, x, worker, gamma) for worker in range(N)]
    models, weights = [], []
    for workers, shares, chance in drawn(sampling, N, problem.M):
        change, odds = np.zeros((len(x), 1)), np.full((len(x), 1), chance)
        for worker, share in zip(workers, shares, strict=True):
            ends = runs[worker][0]
            change = (change[:, :, None] + share * (ends.models - x[:, None])[:, None]).reshape(len(x), -1)
            odds = (odds[:, :, None] * ends.weights[:, None]).reshape(len(x), -1)
        models.append(x[:, None] + problem.eta * change)
        weights.append(odds)
    apart = np.mean([before for _, before in runs], axis=0)
    return Outcomes(np.concatenate(models, axis=1), np.concatenate(weights, axis=1)), apart


class PiecewiseRun(NamedTuple):
    """The average of E f'^2 over the rounds, f(0) - E f(end) with the size of what it adds up, and zeta2."""

    grad2: float
    descent: float
    size: float
    zeta2: float


def follow(problem: PiecewiseProblem, sampling: Sampling, gamma: float) -> PiecewiseRun:
    """Follow every outcome of a run.

    >>> one = np.ones((1, 1))
    >>> parabola = PiecewiseProblem(np.empty(0), one, one[0], 0 * one, one / 2, I=1, R=1)
    >>> follow(parabola, "full", 1.0)  # f = x + x^2/2 from 0 to its minimum
    PiecewiseRun(grad2=1.0, descent=0.5, size=1.5, zeta2=0.0)
    """
    x, weights, grad2, zeta2 = np.zeros(1), np.ones(1), [], 0.0
    for _ in range(problem.R):
        slope = problem.mean_gradient(x)
        grad2.append(float(weights @ (slope * slope)))
        ends, apart = _round(problem, sampling, x, gamma)
        zeta2 = max(zeta2, float((apart @ weights).max()))
        x, weights = ends.models.ravel(), (weights[:, None] * ends.weights).ravel()
    parts = problem.loss_parts(x)
    size = float(weights @ np.abs(parts).sum(axis=0))
    return PiecewiseRun(float(np.mean(grad2)), -float(weights @ parts.sum(axis=0)), size, zeta2)


def check_piecewise(theorem: Theorem, version: Version, problem: PiecewiseProblem) -> tuple[BoundCheck, ...]:
    """Compare a theorem with a problem in the form that its proof shows; nothing where no gamma is admissible."""
    values = {**problem.constants(), "I": problem.I, "R": problem.R, "N": len(problem.slopes), "M": problem.M}
    values["eta"] = problem.eta
    gamma = problem.share * largest_admissible(theorem, version, values)
    if not 0 < gamma < np.inf:
        return ()
    found = follow(problem, theorem.sampling, gamma)
    values |= {"gamma": gamma, "zeta2": found.zeta2}
    names = (*theorem.needed(version), *theorem.optional)
    values = {name: float(value) for name, value in values.items() if name in names}
    total = total_with_gap(theorem, version, values)
    allowance = ROUNDING * (abs(found.grad2) + total(found.size))
    made = BoundCheck("piecewise", found.grad2, found.grad2, total(found.descent), allowance, values)
    return (replace(made, values={**values, "F": found.descent}),)


def _outcomes(problem: PiecewiseProblem, sampling: Sampling) -> float:
    ways = drawn(sampling, len(problem.slopes), problem.M)
    return float(sum(2.0 ** (problem.I * len(runs)) for runs, _, _ in ways)) ** problem.R


def _shortened(problem: PiecewiseProblem, sampling: Sampling) -> PiecewiseProblem:
    while _outcomes(problem, sampling) > MOST_OUTCOMES and problem.R > 1:
        problem = replace(problem, R=problem.R - 1)
    while _outcomes(problem, sampling) > MOST_OUTCOMES and problem.I > 1:
        problem = replace(problem, I=problem.I - 1)
    return problem


def draw_piecewise(theorem: Theorem, generator: np.random.Generator) -> PiecewiseProblem:
    """Draw a problem: two or three workers, up to three kinks near the start."""
    g = generator
    N, kinks = int(g.integers(2, 4)), int(g.integers(0, 4))
    scale = float(np.exp(g.uniform(-2, 2)))
    knots = np.sort(g.normal(size=kinks) * np.exp(g.uniform(-4, 1)))
    mean = g.uniform(-0.3 if g.random() < 0.5 else -1.0, 1.0, size=kinks + 1)
    slopes = scale * (mean + np.exp(g.uniform(-3, 1)) * g.normal(size=(N, kinks + 1)))
    noisy = 0.0 if g.random() < 0.3 else float(np.exp(g.uniform(-4, 2)))
    problem = PiecewiseProblem(
        knots,
        slopes,
        g.normal(size=N) * np.exp(g.uniform(-3, 2)),
        noisy * g.uniform(0, 1, size=slopes.shape),
        g.uniform(0.05, 0.95, size=slopes.shape),
        I=int(g.integers(1, 5)),
        R=int(g.integers(1, 5)),
        M=int(g.integers(1, N + 1)),
        eta=float(np.exp(g.uniform(-1, 2))),
        share=1.0 if g.random() < 0.2 else float(np.exp(g.uniform(-4, 0))),
    )
    return _shortened(problem, theorem.sampling)


def change_piecewise(problem: PiecewiseProblem, theorem: Theorem, generator: np.random.Generator) -> PiecewiseProblem:
    """Change one thing about a problem, by a step whose size is drawn too."""
    g, size = generator, float(np.exp(generator.uniform(-4, 0)))
    way = int(g.integers(6))
    if way == 0:
        spread = size * np.abs(problem.slopes).max()
        return replace(problem, slopes=problem.slopes + spread * g.normal(size=problem.slopes.shape))
    if way == 1:
        spread = size * (np.abs(problem.gradients).max() or 1.0)
        return replace(problem, gradients=problem.gradients + spread * g.normal(size=problem.gradients.shape))
    if way == 2:
        factor = np.exp(3 * size * g.normal(size=problem.deviations.shape))
        return replace(problem, deviations=problem.deviations * factor)
    if way == 3:
        odds = np.clip(problem.odds + size * g.normal(size=problem.odds.shape), 0.02, 0.98)
        return replace(problem, odds=odds)
    if way == 4:
        return replace(problem, knots=np.sort(problem.knots * np.exp(size * g.normal(size=problem.knots.shape))))
    share = float(min(1.0, max(1e-4, problem.share * np.exp(2 * size * g.standard_normal()))))
    return replace(problem, share=share, eta=float(problem.eta * np.exp(size * g.standard_normal())))
