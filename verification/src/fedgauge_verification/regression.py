"""Linear regression under squared error: a federation of quadratics, whose constants are eigenvalues of Gram matrices.

f(W) = mean |W x - y|^2/2 + l2 |W|^2/2 has the gradient W (G + l2) - Y with G the mean of x x' and Y that of y x'. Every
number is an interval that holds the truth: the norm of the error of a mean over n products is at most n eps times the
mean of their sizes, in whatever order they were added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from fedgauge.base.types import Floats
from fedgauge.values import Estimate
from fedgauge_verification.gram import LinearDesign, eigenvalues

_EPS = float(np.finfo(np.float64).eps)


class LeastSquares(NamedTuple):
    """What is known of f's minimum: an approximate minimiser, and intervals for f*, F and d0."""

    model: Floats
    estimates: tuple[Estimate, ...]


class _Errors(NamedTuple):
    """Bounds on the errors of a mean's moments, as norms, and the number by which sums of products lose digits."""

    gram: float
    moment: float
    power: float
    terms: float


def _errors(design: LinearDesign) -> _Errors:
    whole, terms = design.mean, _EPS * (design.samples + 2 * design.num_workers + 2 * design.width + 16)
    trace = float(np.trace(whole.gram))
    return _Errors(terms * trace, terms * (whole.power * trace) ** 0.5, terms * whole.power, terms)


def _gram_errors(design: LinearDesign) -> Floats:
    """For every worker, how far the eigenvalues of its Gram matrix can be off."""
    parts = map(design.worker, range(design.num_workers))
    return np.array([_EPS * (8 * design.width + part.size) * float(np.trace(part.gram)) for part in parts])


def curvature_constants(design: LinearDesign, l2: float) -> Iterator[Estimate]:
    """The constants that follow from the Hessians I (x) (G_i + l2); G is the mean of the G_i."""
    errors, workers = _gram_errors(design), range(design.num_workers)
    local = np.array([eigenvalues(design.worker(i).gram) for i in workers]) + l2
    errors = errors + _EPS * l2
    norms = np.abs(local).max(axis=1)
    values, error = eigenvalues(design.mean.gram) + l2, _spectrum_error(design, l2)
    yield _largest("L_tilde", norms, errors, "max_i lambda_max(G_i) + l2")
    yield Estimate.enclosed("L_g", max(values[-1] - error, l2), float(values[-1]) + error, "lambda_max(G) + l2")
    if design.one_gram:  # the same inputs, so that the Hessians are equal
        apart, doubts, low, high = np.zeros(len(errors)), np.zeros(len(errors)), 0.0, 0.0
    else:
        apart = np.array([np.abs(eigenvalues(design.worker(i).gram - design.mean.gram)).max() for i in workers])
        doubts = errors + error
        squared = float(eigenvalues(design.spread)[-1])
        slack = (9 * design.width + design.num_workers) * _EPS * float(np.trace(design.spread))
        low = max(squared - slack, 0.0) ** 0.5 - float(doubts.max())
        high = max(squared + slack, 0.0) ** 0.5 * (1 + 2 * _EPS) + float(doubts.max())
    yield Estimate.enclosed("L_h", max(low, 0.0), high, "sqrt(lambda_max(mean_i (G_i - G)^2))")
    yield _largest("L_h_paper", apart, doubts, "max_i |G_i - G|")
    ends = (float(np.mean(np.square(end))) ** 0.5 for end in (np.maximum(apart - doubts, 0.0), apart + doubts))
    low, high = next(ends) * (1 - 8 * _EPS), next(ends) * (1 + design.num_workers * _EPS)
    yield Estimate.enclosed("L_h_rms", low, high, "sqrt(mean_i |G_i - G|^2)")
    mu = float(values[0])
    # A Gram matrix has no negative eigenvalues.
    low, method = max(mu - error, l2), "lambda_min(G) + l2"
    yield Estimate("mu", low, low, max(mu + error, low), "exact", method)
    safe = np.where(norms > 0, norms, 1.0)
    kappas, doubt = np.where(norms > 0, 1 - local[:, 0] / safe, 1.0), 3 * errors / safe
    low, high = float((kappas - doubt).max()), min(float((kappas + doubt).max()), 1.0)
    yield Estimate.enclosed("kappa", min(low, high), high, "max_ij 1 - lambda_j(A_i)/|A_i|")
    yield Estimate.exact("varphi", 1.0, "max(1, kappa)")


def _largest(symbol: str, values: Floats, errors: Floats, method: str) -> Estimate:
    return Estimate.enclosed(symbol, max(float((values - errors).max()), 0.0), float((values + errors).max()), method)


def _spectrum_error(design: LinearDesign, l2: float) -> float:
    """How far the eigenvalues of G + l2 can be off."""
    return _errors(design).gram + 8 * design.width * _EPS * float(np.trace(design.mean.gram)) + _EPS * l2


def solve(design: LinearDesign, first: Floats, l2: float) -> LeastSquares:
    """f*, F and d0 for a first model, as a gradient near the minimum proves them if f is strongly convex.

    Without strong convexity no gradient bounds f*; but squared errors are never negative.
    """
    whole, errors = design.mean, _errors(design)
    values, vectors = np.linalg.eigh(whole.gram + l2 * np.eye(design.width))
    flat = values <= 1e-12 * values[-1]
    inverse = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, values))
    best = whole.moment @ (vectors * inverse) @ vectors.T
    size, trace = float(np.linalg.norm(best)), float(np.trace(whole.gram))

    def gradient(matrix: Floats) -> tuple[Floats, float]:
        norm = float(np.linalg.norm(matrix))
        error = norm * (errors.gram + errors.terms * (trace + l2)) + errors.moment
        return matrix @ (whole.gram + l2 * np.eye(design.width)) - whole.moment, error

    (start, start_error), (end, end_error) = gradient(first), gradient(best)
    D = first - best
    away = float(np.linalg.norm(D))
    fall = max(float(np.sum(D * (start + end))) / 2, 0.0)  # f(first) - f(best)
    error = away * (start_error + end_error + errors.terms * float(np.linalg.norm(start) + np.linalg.norm(end)))
    reached = (whole.power + float(np.sum(best * (end - whole.moment)))) / 2  # f(best)
    doubt = size * (end_error + errors.terms * float(np.linalg.norm(whole.moment)) + errors.moment) + errors.power
    # Inputs that are always 0 change nothing but the L2 term.
    known = (np.diag(whole.gram) > 0) | (np.abs(whole.moment) > 0).any(axis=0)
    mu = l2
    if known.any():
        mu = max(float(eigenvalues(whole.gram[np.ix_(known, known)])[0]) + l2 - _spectrum_error(design, l2), l2)
    if mu <= 0:
        top = max(reached, 0.0) + fall + doubt + error
        return LeastSquares(
            best,
            (
                Estimate("f_star", 0.0, 0.0, max(reached, 0.0) + doubt, "lower", "f is never negative"),
                Estimate("F", top, 0.0, top, "upper", "f(x0) - 0: f may be flat somewhere, but is never negative"),
                Estimate("d0", away**2, 0.0, np.inf, "sample", "distance from a minimiser; not proved"),
            ),
        )
    slope = float(np.linalg.norm(end)) + end_error
    tail, reach = slope**2 / (2 * mu), slope / mu
    near, far = max(away * (1 - errors.terms) - reach, 0.0), away * (1 + errors.terms) + reach
    floor = max(reached - doubt - tail, 0.0)
    return LeastSquares(
        best,
        (
            Estimate("f_star", floor, floor, max(reached, 0.0) + doubt, "exact", "least squares"),
            Estimate.enclosed("F", max(fall - error, 0.0), fall + error + tail, "the quadratic at the start"),
            Estimate.enclosed("d0", near**2 * (1 - 4 * _EPS), far**2 * (1 + 4 * _EPS), "distance from the minimiser"),
        ),
    )


def loss_at(design: LinearDesign, matrix: Floats, l2: float) -> tuple[float, float]:
    """The value of f at a matrix W, and how far rounding can have moved it."""
    whole, errors, norm = design.mean, _errors(design), float(np.linalg.norm(matrix))
    curved = float(np.sum((matrix @ whole.gram) * matrix)) + l2 * norm**2
    loss = (curved + whole.power) / 2 - float(np.sum(matrix * whole.moment))
    sizes = norm**2 * (float(np.trace(whole.gram)) + l2) + whole.power + norm * float(np.linalg.norm(whole.moment))
    return loss, errors.terms * sizes + norm**2 * errors.gram + norm * errors.moment + errors.power


def divergences(design: LinearDesign, first: Floats) -> Iterator[Estimate]:
    """Zeta at a matrix W: the same everywhere if the Hessians are equal, and otherwise unbounded over all models."""
    apart = np.array([_apart(design, first, worker) for worker in range(design.num_workers)])
    errors = _errors(design)
    doubt = 2 * (errors.moment + float(np.linalg.norm(first)) * errors.gram)
    for name, value in (("zeta", float(apart.max())), ("zeta_rms", float(np.mean(apart**2)) ** 0.5)):
        if design.one_gram:
            method = "the same at every model, as the Hessians are equal"
            yield Estimate.enclosed(name, max(value - doubt, 0.0), value + doubt, method)
        else:
            yield at_start(name, value)


def at_start(symbol: str, value: float) -> Estimate:
    """A constant that was measured at the first model, and that is unbounded over all models."""
    return Estimate(symbol, value, value, np.inf, "lower", "at the start; unbounded over all models")


def _apart(design: LinearDesign, matrix: Floats, worker: int) -> float:
    """|grad F_i - grad f| at a matrix W."""
    of_worker, whole = design.worker(worker), design.mean
    return float(np.linalg.norm(matrix @ (of_worker.gram - whole.gram) - (of_worker.moment - whole.moment)))


def variance(design: LinearDesign, matrix: Floats, worker: int) -> float:
    """The variance of one sample's gradient at a matrix W."""
    W, of_worker = torch.from_numpy(matrix), design.worker(worker)
    squares = 0.0
    for x, y in design.blocks(worker):
        squares += float(((x @ W.T.to(x) - y).square().sum(dim=1) * x.square().sum(dim=1)).sum())
    mean = matrix @ of_worker.gram - of_worker.moment
    return max(squares / of_worker.size - float(np.sum(mean**2)), 0.0)
