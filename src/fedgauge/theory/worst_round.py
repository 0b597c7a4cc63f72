"""A federation near the worst case of a round: the other side of the certificate of :mod:`fedgauge.theory.sdp`.

Two kinds of workers with quadratics in one dimension, whose curvatures and pulls differ to opposite sides. With L_h,
zeta and sigma as they are given, its first round descends by no more than F/R in expectation, and its first squared
gradient is as large as a search can make it. So no bound that is proved round by round, as the certificate and the
theorems are, can be below it; where R is 1 it is a counterexample to any lower bound. All expectations are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.values import Value

Floats = npt.NDArray[np.float64]
_POINTS, _KEPT, _TURNS = 6000, 60, 80


@dataclass(frozen=True)
class WorstRound(Value):
    """The federation that was found.

    Attributes:
        grad2: its squared gradient at the start, which is 0.
        curvatures: of the workers' objectives.
        pulls: the gradients of the workers' objectives at the start.
    """

    grad2: float
    curvatures: tuple[float, ...]
    pulls: tuple[float, ...]


def _sides(N: int) -> Floats:
    """To which side each worker differs: two kinds, of mean 0 and mean square 1; one worker differs from nobody."""
    first = (N + 1) // 2
    second = N - first
    if second == 0:
        return np.zeros(N)
    return np.concatenate([np.full(first, (second / first) ** 0.5), np.full(second, -((first / second) ** 0.5))])


def one_round(
    A: Floats,
    C: Floats,
    g: Floats,
    pull: Floats,
    *,
    I: int,  # noqa: E741
    gamma: float,
    eta: float,
    N: int,
    sigma2: float,
) -> tuple[Floats, Floats]:
    """Return f(0) - E f(xbar^1) and the largest mean square divergence, for many federations at once.

    >>> one = np.ones(1)
    >>> down, apart = one_round(one, 0 * one, one, 0 * one, I=1, gamma=1.0, eta=1.0, N=2, sigma2=0.0)
    >>> float(down[0]), float(apart[0])  # f = x + x^2/2, from 0 to its minimum
    (0.5, 0.0)
    """
    side = _sides(N)[:, None]
    a, b = A + C * side, g + pull * side
    x, spread, apart = np.zeros(a.shape), np.zeros(a.shape), np.zeros(A.shape)
    for _ in range(I):
        off = (C * x + pull) * side
        apart = np.maximum(apart, np.mean(off * off + (C * side) ** 2 * spread, axis=0))
        x = x - gamma * (a * x + b)
        spread = (1 - gamma * a) ** 2 * spread + gamma * gamma * sigma2
    mean, variance = eta * x.mean(axis=0), eta * eta * spread.mean(axis=0) / N
    return -(A * (mean * mean + variance) / 2 + g * mean), apart


def worst_round(
    *, F: float, I: int, R: float, N: int, sigma2: float, zeta2: float,  # noqa: E741
    L_g: float, L_h: float, gamma: float, eta: float = 1.0, below: float, seed: int = 0,
) -> WorstRound:  # fmt: skip
    """Search for the federation with the largest squared gradient at the start.

    Args:
        F: with R, the descent F/R that a round may make.
        I: local steps.
        R: rounds.
        N: workers.
        sigma2: variance of a stochastic gradient.
        zeta2: squared gradient divergence.
        L_g: smoothness of f.
        L_h: pseudo-Lipschitz constant of the averaged gradients.
        gamma: local rate.
        eta: global rate.
        below: a bound on the squared gradient.
        seed: of the search.

    >>> found = worst_round(F=1, I=1, R=100, N=2, sigma2=0, zeta2=1, L_g=1, L_h=1, gamma=1, below=0.02)
    >>> round(found.grad2, 4)  # gradient descent on a parabola of curvature L_g
    0.02
    """
    draw = np.random.default_rng(seed)
    top = np.array([L_g, L_h if N > 1 else 0.0, below**0.5, zeta2**0.5 if N > 1 else 0.0])
    low = np.array([-1.0, -1.0, 0.0, -1.0])
    run: dict[str, Any] = {"I": I, "gamma": gamma, "eta": eta, "N": N, "sigma2": sigma2}
    points, width = draw.uniform(low, 1.0, size=(_POINTS, 4)), 0.5
    best = np.zeros((1, 4))
    for _ in range(_TURNS):
        with np.errstate(over="ignore", invalid="ignore"):
            down, apart = one_round(*(points * top).T, **run)
        fine = (down <= F / R) & (apart <= zeta2)
        kept = points[fine]
        best = np.concatenate([best, kept])[np.argsort(-np.append(best[:, 2], kept[:, 2]))][:_KEPT]
        moved = best[draw.integers(len(best), size=_POINTS)] + width * draw.normal(size=(_POINTS, 4))
        points, width = np.clip(moved, low, 1.0), width * 0.87
    A, C, g, pull = best[0] * top
    side = _sides(N)
    return WorstRound(float(g * g), tuple((A + C * side).tolist()), tuple((g + pull * side).tolist()))
