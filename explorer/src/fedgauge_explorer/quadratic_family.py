"""A family of quadratics with chosen constants, on which local and mini-batch SGD can be compared exactly.

There is one federation for each (F, N, L_g, L_h, zeta, sigma). Along one direction, f has curvature L_g, and the
workers differ: half of them have curvature L_g + L_h and pull by zeta; the others have L_g - L_h and pull the opposite
way. So |grad F_i - grad f| is zeta at the start and at x*. Along the other directions all workers agree; the curvatures
fall geometrically from L_g to L_g/conditioning, and F is divided equally among these directions. All Hessians commute,
so each direction is a recursion of two numbers, and a whole grid is evaluated at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.base.types import Floats
from fedgauge.federation.quadratic import QuadraticFederation


def spectrum(L_g: float, dim: int, conditioning: float) -> Floats:
    """Return the curvatures of f: L_g where the workers differ, then from L_g down to L_g/conditioning."""
    return np.concatenate([[L_g], L_g * np.geomspace(1.0, 1.0 / conditioning, dim - 1)])


def family(
    *,
    F: float,
    N: int,
    L_g: float,
    L_h: float,
    zeta: float,
    sigma: float,
    dim: int = 6,
    conditioning: float = 100.0,
) -> QuadraticFederation:
    """Make the federation of the family that has these constants.

    >>> federation = family(F=1.0, N=4, L_g=1.0, L_h=0.25, zeta=3.0, sigma=0.5)
    >>> found = federation.constants()
    >>> round(found["L_h"].value, 9), float(federation.zeta(federation.first_model).max())
    (0.25, 3.0)
    """
    curvature = spectrum(L_g, dim, conditioning)
    side = np.where(np.arange(N) % 2, -1.0, 1.0)
    hessians = np.tile(np.diag(curvature), (N, 1, 1))
    hessians[:, 0, 0] += side * L_h
    linear = np.zeros((N, dim))
    linear[:, 0] = side * zeta
    start = np.append(0.0, np.sqrt(2 * F / ((dim - 1) * curvature[1:])))
    return QuadraticFederation(hessians, linear, sigma2=sigma**2, start=start)


def _round_sums(P: Floats, t: Floats, q: Floats, start: Floats, rounds: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Sum E x and E x^2 over R rounds of x <- P x + t + noise of variance q, by doubling the number of rounds."""
    step = np.zeros((*P.shape, 3, 3))  # acts on (1, E x, E x^2)
    step[..., 0, 0] = 1.0
    step[..., 1, 0], step[..., 1, 1] = t, P
    step[..., 2, 0], step[..., 2, 1], step[..., 2, 2] = t * t + q, 2 * P * t, P * P
    power, total = np.broadcast_to(np.eye(3), step.shape), np.zeros(step.shape)
    for bit in reversed(range(int(rounds.max()).bit_length())):
        total = total + power @ total
        power = power @ power
        odd = ((rounds >> bit) & 1).astype(bool)[..., None, None]
        total = np.where(odd, total + power, total)
        power = np.where(odd, power @ step, power)
    first = np.stack(np.broadcast_arrays(np.ones(P.shape), start, start * start), axis=-1)
    sums = (total @ first[..., None])[..., 0]
    return sums[..., 1], sums[..., 2]


def average_grad2(
    gamma: Any,
    *,
    F: Any,
    N: Any,
    L_g: float,
    L_h: Any,
    zeta: Any,
    sigma: Any,
    I: Any,  # noqa: E741
    R: Any,
    minibatch: bool = False,
    dim: int = 6,
    conditioning: float = 100.0,
) -> Floats:
    """Return the exact average of E|grad f|^2 on the family, at many points at once.

    The average is over the R I models xhat^t of local SGD, or over the R models of mini-batch SGD, which is local SGD
    with one step and the noise of I averaged gradients. All arguments except L_g, dim and conditioning may be arrays.

    >>> values = dict(F=1.0, N=8, L_g=1.0, L_h=0.0, zeta=1.0, sigma=0.0, R=10)
    >>> local, other = (average_grad2(0.5, I=4, minibatch=m, **values) for m in (False, True))
    >>> bool(local < other), bool(average_grad2(0.5, I=1, **values) == other)
    (True, True)
    """
    gamma, F, N, L_h, zeta, sigma, I, R = (  # noqa: E741
        np.asarray(value, dtype=float)[..., None] for value in np.broadcast_arrays(gamma, F, N, L_h, zeta, sigma, I, R)
    )
    curvature = spectrum(L_g, dim, conditioning)
    differs = np.arange(dim) == 0
    start = np.where(differs, 0.0, np.sqrt(2 * F / ((dim - 1) * curvature)))
    steps, batch = (np.ones_like(I), I) if minibatch else (I, np.ones_like(I))
    noise = gamma * gamma * sigma * sigma / (dim * N * batch)
    # Two kinds of workers: after k steps, x is power x - side gamma zeta sums, with noise times squares.
    side = np.array([1.0, -1.0]).reshape(2, *[1] * gamma.ndim)
    shrink = 1 - gamma * (curvature + side * L_h * differs)
    power, sums, squares = np.ones(shrink.shape), np.zeros(shrink.shape), np.zeros(shrink.shape)
    on_square, on_mean, alone = (np.zeros(shrink.shape[1:]) for _ in range(3))

    def mean() -> tuple[Any, Any, Any]:
        pull = -gamma * zeta * differs * (sums[0] - sums[1]) / 2
        return (power[0] + power[1]) / 2, pull, noise * (squares[0] + squares[1]) / 2

    for k in range(int(steps.max())):
        live = k < steps
        P, t, q = mean()
        on_square = on_square + np.where(live, P * P, 0.0)
        on_mean = on_mean + np.where(live, 2 * P * t, 0.0)
        alone = alone + np.where(live, t * t + q, 0.0)
        sums, squares = sums + np.where(live, power, 0.0), squares + np.where(live, power * power, 0.0)
        power = np.where(live, power * shrink, power)
    first, second = _round_sums(*mean(), start, R.astype(np.int64))
    total = curvature * curvature * (on_square * second + on_mean * first + R * alone)
    average: Floats = total.sum(axis=-1) / (R * steps)[..., 0]
    return average
