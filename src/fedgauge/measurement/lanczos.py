"""The largest eigenvalue of a symmetric operator that can only be multiplied by vectors, with an interval around it.

scipy's Lanczos solver (ARPACK) finds the eigenvalue; this module adds the interval. A Ritz value never exceeds the
largest eigenvalue, so it is the lower end. For the upper end, Kuczynski and Woźniakowski (1992, Theorem 4.2) bound the
probability that k Lanczos steps, from a direction uniform on the sphere, miss it by much: in d dimensions, with
eigenvalues in [a, b],

    P(b - theta > epsilon (b - a)) <= 1.648 sqrt(d) exp(-(2k - 1) sqrt(epsilon)).

The solver's restarts only raise theta, so the bound for the steps before its first restart holds for its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.measurement.intervals import CONFIDENCE

_STEPS = 32
"""Lanczos steps before a restart: few enough to fit in memory, enough for an upper end two per cent above the value."""
_BYTES = 2**29
"""The bytes of directions that may be held at once; large models get fewer than 32."""
_RESTARTS = 20


class Ritz(NamedTuple):
    """The largest absolute eigenvalue of an operator, with its interval.

    Attributes:
        value: |v'Av| for the direction found; the largest absolute eigenvalue is at least this.
        high: an upper bound that holds with probability ``CONFIDENCE`` over the random first direction.
        vector: the direction v, of length one.
        residual: |Av - (v'Av) v|; an eigenvalue lies within this distance of v'Av.
        products: the number of products with the operator.
        converged: whether the residual fell below the tolerance.
    """

    value: float
    high: float
    vector: Floats
    residual: float
    products: int
    converged: bool


def largest(
    product: Callable[[Floats], Floats],
    dim: int,
    tolerance: float,
    generator: np.random.Generator,
    *,
    positive: bool = False,
) -> Ritz:
    """Find the largest absolute eigenvalue of a symmetric operator.

    Args:
        product: a function that multiplies the operator by a vector.
        dim: the dimension d.
        tolerance: the residual, relative to the value, at which to stop.
        generator: the generator that draws the first direction.
        positive: whether no eigenvalue is negative, which halves the width of the interval.

    >>> matrix = np.diag([1.0, -3.0, 2.0])
    >>> top = largest(lambda v: matrix @ v, 3, 1e-12, np.random.default_rng(0))
    >>> round(top.value, 9), top.converged
    (3.0, True)
    """
    if dim <= 2 * _STEPS:
        return _dense(product, dim)
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    steps = max(min(_STEPS, _BYTES // (8 * dim)), 8)
    used = 0

    def counted(vector: Floats) -> Floats:
        nonlocal used
        used += 1
        answer = product(np.ascontiguousarray(vector.reshape(-1)))
        if not np.isfinite(answer).all():
            raise InputError("The Hessian is not finite at this model: it has diverged; measure an earlier one.")
        return answer

    first = generator.standard_normal(dim)
    image = counted(first)
    if not image.any():
        # A random direction is almost surely in no proper subspace, so the operator is zero.
        return Ritz(0.0, 0.0, first / np.linalg.norm(first), 0.0, used, True)
    operator = LinearOperator((dim, dim), matvec=counted, dtype=np.float64)
    vector = first / np.linalg.norm(first)
    # If several eigenvalues are close to the largest, the direction does not converge but the value does: accept 5%.
    for accepted in (tolerance, 0.05):
        with suppress(ArpackNoConvergence):
            _, vectors = eigsh(operator, k=1, which="LM", ncv=steps, v0=vector, tol=accepted, maxiter=_RESTARTS)
            vector = vectors[:, 0]
            break
    image = counted(vector)
    value = float(vector @ image)
    residual = float(np.linalg.norm(image - value * vector))
    miss = (math.log(1.648 * math.sqrt(dim) / (1 - CONFIDENCE)) / (2 * steps - 1)) ** 2
    # An indefinite operator's eigenvalues span at most twice the largest; if that gives no bound, the end is infinite.
    room = 1 - (1 if positive else 2) * miss
    high = abs(value) / room if room > 0 else math.inf
    high = max(high, abs(value) + residual)
    return Ritz(abs(value), high, vector, residual, used, residual <= max(10 * tolerance, 1e-12) * abs(value))


def keep_worst(worst: list[tuple[int, Ritz]], worker: int, ritz: Ritz) -> None:
    """Add a worker's answer; only the largest keeps its direction, so that memory does not grow with their number."""
    none = np.empty(0)
    for index, (held, other) in enumerate(worst):
        if len(other.vector) and other.value < ritz.value:
            worst[index] = held, other._replace(vector=none)
        elif len(other.vector):
            ritz = ritz._replace(vector=none)
    worst.append((worker, ritz))


def _dense(product: Callable[[Floats], Floats], dim: int) -> Ritz:
    """The answer from the whole matrix, for small dimensions."""
    matrix = np.stack([product(unit) for unit in np.eye(dim)])
    if not np.isfinite(matrix).all():
        raise InputError("The Hessian is not finite at this model: it has diverged; measure an earlier one.")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    index = int(np.abs(values).argmax())
    value, vector = float(values[index]), vectors[:, index]
    return Ritz(abs(value), abs(value), vector, float(np.linalg.norm(matrix @ vector - value * vector)), dim, True)
