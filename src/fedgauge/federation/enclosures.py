"""The constants of quadratics as intervals that hold the truth, rounding included.

The matrices A_i and vectors b_i are exact numbers; everything computed from them is not. Three errors are bounded, each
generously: that of a mean over N numbers, at most 2 (N + 4) eps times the largest; that of the eigenvalues of a
symmetric matrix, at most 8 d eps times its Frobenius norm; and that of sums of products, at most eps times the number
of terms times the sum of their sizes. tests/federation/test_enclosures.py compares with 60 digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.values import Estimate

if TYPE_CHECKING:
    from fedgauge.federation.quadratic import QuadraticFederation


EPS = float(np.finfo(np.float64).eps)


def eigenvalue_error(matrices: Floats) -> Floats:
    """How far the computed eigenvalues of symmetric matrices can be off: a small multiple of dim eps norm; 8 is ample.

    >>> bool(eigenvalue_error(np.eye(3)) < 1e-14)
    True
    """
    error: Floats = 8 * matrices.shape[-1] * EPS * np.sqrt(np.square(matrices).sum(axis=(-2, -1)))
    return error


def root(number: float) -> tuple[float, float]:
    """An interval that holds the root of a number: of no width where the root is a float.

    >>> root(0.25)
    (0.5, 0.5)
    """
    near = float(np.sqrt(number))
    if Fraction(near) ** 2 == Fraction(number):
        return near, near
    return float(np.nextafter(near, 0.0)), float(np.nextafter(near, np.inf))


def mean_error(rows: Floats) -> float:
    """How far an entry of the computed mean of rows can be off; 0 where all rows are equal, as their mean is exact."""
    return 0.0 if (rows == rows[0]).all() else 2 * (len(rows) + 4) * EPS * float(np.abs(rows).max())


def curvature_constants(federation: QuadraticFederation, flat: float) -> Iterator[Estimate]:
    """The constants that the Hessians determine; an eigenvalue of A below ``flat`` times the norm counts as mu = 0."""
    A_i, A, d = federation.hessians, federation.mean_hessian, federation.dim
    N, off = len(A_i), federation.hessians - federation.mean_hessian
    eigenvalues, errors = np.linalg.eigvalsh(A_i), eigenvalue_error(A_i)
    norms = np.abs(eigenvalues).max(axis=1)
    yield _spread("L_tilde", norms, errors, "max_i |A_i|")
    of_mean = mean_error(A_i)
    values, error = np.linalg.eigvalsh(A), float(eigenvalue_error(A)) + d * of_mean
    L_g = float(np.abs(values).max())
    yield Estimate.enclosed("L_g", max(L_g - error, 0.0), L_g + error, "|A|")
    # L_h is the norm of all A_i - A on top of each other, over sqrt(N), so that an error in these adds at most its own.
    moved = d * (of_mean + EPS * float(np.abs(off).max()))
    squared = float(np.linalg.eigvalsh(np.matmul(off, off).mean(axis=0))[-1])
    slack = (9 * d + N + 4) * EPS * float(np.square(off).sum()) / N
    low, high = max(squared - slack, 0.0) ** 0.5 - moved, max(squared + slack, 0.0) ** 0.5 * (1 + 2 * EPS) + moved
    yield Estimate.enclosed("L_h", max(low, 0.0), high, "sqrt(lambda_max(mean_i (A_i - A)^2))")
    apart = np.abs(np.linalg.eigvalsh(off)).max(axis=1)
    yield _spread("L_h_paper", apart, eigenvalue_error(off) + moved, "max_i |A_i - A|")
    mu, method = float(values[0]), "lambda_min(A)"
    if abs(mu) > max(flat * L_g, error):
        yield Estimate.enclosed("mu", mu - error, mu + error, method)
    else:
        yield Estimate("mu", 0.0, min(mu - error, 0.0), max(mu + error, 0.0), "exact", method)
    safe = np.where(norms > 0, norms, 1.0)
    kappas, doubt = np.where(norms > 0, 1 - eigenvalues[:, 0] / safe, 1.0), 3 * errors / safe
    low, high = float((kappas - doubt).max()), min(float((kappas + doubt).max()), 2.0)
    yield Estimate.enclosed("kappa", min(low, high), high, "max_ij 1 - lambda_j(A_i)/|A_i|")
    yield Estimate.enclosed("varphi", max(1.0, low), max(1.0, high), "max(1, kappa)")
    yield Estimate.enclosed("sigma", *root(federation.sigma2), "as given")


def _spread(symbol: str, values: Floats, errors: Floats, method: str) -> Estimate:
    """The largest of some values, each of which may be off by its error."""
    return Estimate.enclosed(symbol, max(float((values - errors).max()), 0.0), float((values + errors).max()), method)


def divergence(federation: QuadraticFederation, start: Floats) -> Estimate:
    """Zeta at a model: the same everywhere where the Hessians are equal, and otherwise unbounded over all models."""
    zeta = float(federation.zeta(start).max())
    A_i, b_i, sizes = np.abs(federation.hessians).max(axis=0), np.abs(federation.linear).max(axis=0), np.abs(start)
    N, d = federation.num_workers, federation.dim
    if (federation.hessians == federation.hessians[0]).all():
        error = 0.0 if (federation.linear == federation.linear[0]).all() else _norm(b_i) * (2 * N + d + 12) * EPS
        return Estimate.enclosed(
            "zeta", max(zeta - error, 0.0), zeta + error, "max_i |grad F_i - grad f|, the same everywhere"
        )
    error = _norm(A_i @ sizes + b_i) * (2 * N + 2 * d + 16) * EPS
    return Estimate("zeta", zeta, max(zeta - error, 0.0), np.inf, "lower", "max_i |grad F_i - grad f| at the start")


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector))


def gap_constants(federation: QuadraticFederation, start: Floats) -> tuple[Estimate, ...]:
    """f*, F and d0 for a first model.

    With mu > 0 proved, any x has f(x) - f* <= |grad f(x)|^2/(2 mu) and |x - x*| <= |grad f(x)|/mu, so that a computed
    minimiser proves an interval. Where f may be flat or fall without end within rounding, nothing is proved.
    """
    x, f_star = federation.minimiser()
    if x is None:
        return (
            Estimate.exact("f_star", f_star, "f is unbounded below"),
            Estimate.exact("F", np.inf, "f is unbounded below"),
        )
    N, d, D = federation.num_workers, federation.dim, start - x
    # A coordinate that no A_i and no b_i knows changes nothing.
    known = (np.abs(federation.hessians).max(axis=(0, 1)) > 0) | (np.abs(federation.linear).max(axis=0) > 0)
    block = federation.mean_hessian[np.ix_(known, known)]
    mu = 0.0
    if known.any():
        error = float(eigenvalue_error(block)) + d * mean_error(federation.hessians)
        mu = float(np.linalg.eigvalsh(block)[0]) - error
    A_i, b_i = np.abs(federation.hessians).max(axis=0), np.abs(federation.linear).max(axis=0)
    terms = (2 * N + 2 * d + 16) * EPS

    def gradient(model: Floats) -> tuple[Floats, float]:
        return federation.mean_hessian @ model + federation.mean_linear, terms * _norm(A_i @ np.abs(model) + b_i)

    (first, first_error), (last, last_error) = gradient(start), gradient(x)
    fall = float(D @ (first + last)) / 2  # f(x0) - f(x), without the constant part, which would swallow digits
    error = _norm(D) * (first_error + last_error + terms * (_norm(first) + _norm(last)))
    sizes = np.abs(x)
    f_error = terms * float(sizes @ A_i @ sizes / 2 + b_i @ sizes + np.abs(federation.constant).max())
    if not mu > 0 and known.any():
        unproved = "; f is flat to rounding in some direction, so that this is not proved"
        return (
            Estimate("f_star", f_star, -np.inf, f_star + f_error, "sample", f"f(x*){unproved}"),
            Estimate("F", max(fall, 0.0), max(fall - error, 0.0), np.inf, "sample", f"f(x0) - f*{unproved}"),
            Estimate("d0", float(D @ D), 0.0, np.inf, "sample", f"|x0 - x*|^2{unproved}"),
        )
    slope = _norm(last) + last_error if known.any() else 0.0
    tail, reach = (slope**2 / (2 * mu), slope / mu) if slope else (0.0, 0.0)
    away = _norm(D)
    near, far = max(away * (1 - terms) - reach, 0.0), away * (1 + terms) + reach
    return (
        Estimate("f_star", f_star, f_star - f_error - tail, f_star + f_error, "exact", "f(x*)"),
        Estimate.enclosed("F", max(fall - error, 0.0), max(fall, 0.0) + error + tail, "f(x0) - f*"),
        Estimate.enclosed("d0", near**2 * (1 - 4 * EPS), far**2 * (1 + 4 * EPS), "|x0 - x*|^2"),
    )
