"""Softmax regression with an L2 term: bounds that hold at every model, each derived in docs/theory/softmax.md.

The outputs are W x. For a sample s, p(s) are the softmax probabilities and y(s) is its class as a unit vector; C is the
number of classes. A sample's gradient is (p - y) x', its Hessian is (diag(p) - p p') (x) x x', and G_i is the mean of
x x' over worker i's samples. The L2 term adds l2 W to the gradient and l2 to the Hessian, the same for all workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fedgauge.base.types import Floats
from fedgauge_verification.gram import LayerMoments, LinearDesign, eigenvalues, largest_eigenvalue, product

_EPS = float(np.finfo(np.float64).eps)
_CURVATURE = 0.5
"""Largest eigenvalue of diag(p) - p p' over all p, reached at p = (1/2, 1/2, 0, ...)."""
_CENTRES = np.linspace(0.0, 1.0, 33)
_WEIGHTS = np.geomspace(1e-3, 1e3, 121)


class Range(NamedTuple):
    """Bounds on a supremum over all models: at least ``low``, which some model attains, and at most ``high``."""

    low: float
    high: float


def _shared_curvature(design: LinearDesign) -> float:
    """The curvature that one model can give all samples: the largest if there are biases, otherwise that of W = 0."""
    return _CURVATURE if design.bias else 1.0 / design.outputs


def smoothness(design: LinearDesign, l2: float) -> tuple[Range, Range, Range]:
    """Bounds on L_tilde, L_g and L_h over all models.

    L_h is at most the root of min_t t^2 + lambda_max(mean_i (b_i - 2t)_+ G_i/2), where b_i = lambda_max(G_i)/2.
    """
    tops = [largest_eigenvalue(part.gram, part.size) for part in map(design.worker, range(design.num_workers))]
    # The norm of a mean is at most the largest norm, also with the margins for rounding.
    top, share = min(largest_eigenvalue(design.mean.gram, design.samples), max(tops)), _shared_curvature(design)
    local, whole = (Range(share * each * (1 - 1e-9) + l2, _CURVATURE * each + l2) for each in (max(tops), top))
    curved = _CURVATURE * np.array(tops)
    bounds = []
    for t in np.linspace(0.0, curved.max() / 2, 17):
        weights = np.maximum(curved - 2 * t, 0.0)
        bounds.append(t**2 + _CURVATURE * largest_eigenvalue(design.combined(weights), design.samples))
    spread = max(float(eigenvalues(design.spread)[-1]), 0.0) ** 0.5
    high = min(bounds) ** 0.5 * (1 + 4 * _EPS)
    return local, whole, Range(min(share * spread, high), high)


def _reach(centre: Floats, classes: int) -> Floats:
    """The largest distance |p - c| over all p in the simplex, for c = (1 - centre)/C + centre y."""
    reach: Floats = np.sqrt(1 - 1 / classes + 2 * centre / classes + centre**2 * (1 - 1 / classes))
    return reach


def _divergence(of_worker: LayerMoments, mean: LayerMoments, share: float, classes: int) -> Range:
    """sup |grad F_i - grad f| for a worker whose samples make up ``share`` of f's.

    The difference is sum_s w_s (p - y) x', with weights w that sum to 0 and whose absolute values sum to 2 (1 - share).
    """
    mass = 2 * (1 - share)
    if mass == 0:
        return Range(0.0, 0.0)
    # The moments of x x' and x, weighted by the absolute values of the weights.
    gram = mean.gram + (1 - 2 * share) * of_worker.gram
    middle = (mean.mean + (1 - 2 * share) * of_worker.mean) / mass
    gap = of_worker.target - mean.target
    at_zero = float(np.linalg.norm((of_worker.mean - mean.mean) / classes - (of_worker.moment - mean.moment)))
    reach = _reach(_CENTRES, classes)
    plain = (1 - _CENTRES) * at_zero + reach * (mass * largest_eigenvalue(gram, mean.size)) ** 0.5

    length = float(np.linalg.norm(middle))
    shift = np.sqrt(mass**2 / 2 + mass * _CENTRES * np.ptp(gap) + _CENTRES**2 * float(gap @ gap))
    alpha, beta2 = (length * shift)[:, None], (reach**2 * mass)[:, None]
    about = gram - mass * np.outer(middle, middle)
    unit = middle / length if length else middle
    image = about @ unit
    along = float(unit @ image)
    across = float(np.linalg.norm(image - along * unit))
    rest = about - np.outer(unit, image) - np.outer(image - along * unit, unit)
    below = largest_eigenvalue(rest, mean.size)
    # The largest eigenvalue of kappa unit unit' + about is at most that of a 2 by 2 matrix.
    kappa = _WEIGHTS * max(below, _EPS * float(np.trace(gram)))
    head = kappa + along
    top = (head + below) / 2 + np.sqrt(((head - below) / 2) ** 2 + across**2)
    split = (1 - _CENTRES)[:, None] * at_zero + np.sqrt((alpha**2 / kappa + beta2) * top)

    rounding = 8 * _EPS * (mean.size + len(gram)) * mass * float(np.trace(gram) + 1.0) ** 0.5
    return Range(max(at_zero - rounding, 0.0), min(plain.min(), split.min()) + rounding)


def divergences(design: LinearDesign) -> list[Range]:
    """zeta_i = sup over all models of |grad F_i - grad f|, for every worker."""
    keys = [design.worker(worker).key for worker in range(design.num_workers)]
    return [
        _divergence(design.worker(worker), design.mean, keys.count(key) / len(keys), design.outputs)
        for worker, key in enumerate(keys)
    ]


def variances(design: LinearDesign) -> list[Range]:
    """sup over all models of the variance of one sample's gradient, for every worker.

    The mean square around any fixed matrix K is at least the variance. For K = -t mean(y x'), its largest value over
    all p is found sample by sample, at the corners of the simplex. The bound uses the best of several t.
    """
    variances_of = []
    for worker in range(design.num_workers):
        of_worker = design.worker(worker)
        moment, power = torch.from_numpy(of_worker.moment), float(np.sum(of_worker.moment**2))
        centres = torch.from_numpy(_CENTRES)[:, None]
        total = np.zeros(len(_CENTRES))
        for x, y in design.blocks(worker):
            scores = x @ moment.T.to(x)
            right = (scores * y).sum(dim=1)
            wrong = scores.masked_fill(y > 0, -torch.inf).amax(dim=1)
            off = 2 * x.square().sum(dim=1).cpu() + 2 * centres * (wrong - right).cpu()
            total += off.clamp(min=0.0).sum(dim=1).numpy()
        high = float((total / of_worker.size + _CENTRES**2 * power).min())
        rest = 1 - 1 / design.outputs
        low = rest * float(np.trace(of_worker.gram)) - float(
            np.sum((of_worker.mean / design.outputs - of_worker.moment) ** 2)
        )
        rounding = 8 * _EPS * (of_worker.size + design.width) * float(np.trace(of_worker.gram))
        variances_of.append(Range(max(low - rounding, 0.0), high + rounding))
    return variances_of


class Evaluated(NamedTuple):
    """f and its gradient at a model, each with a bound on its rounding error."""

    loss: float
    gradient: Floats
    loss_error: float
    gradient_error: float


def evaluate(design: LinearDesign, matrix: Floats, l2: float) -> Evaluated:
    """f with equal weights for all workers, and its gradient, at a matrix W, in float64."""
    W = torch.from_numpy(matrix)
    loss, gradient = 0.0, torch.zeros_like(W)
    for worker, size in enumerate(design.sizes):
        weight = 1.0 / (design.num_workers * size)
        for x, y in design.blocks(worker):
            logs = torch.log_softmax(x @ W.T.to(x), dim=1)
            loss -= weight * float((logs * y).sum())
            gradient.add_(((logs.exp() - y).T @ x).cpu(), alpha=weight)
    norm, longest = float(np.linalg.norm(matrix)), design.mean.longest
    output_error = _EPS * (design.width + 8) * norm * longest
    total = loss + l2 / 2 * norm**2
    return Evaluated(
        total,
        gradient.cpu().numpy() + l2 * matrix,
        2 * output_error + _EPS * design.samples * total,
        longest * (2 * output_error + 2 * _EPS * design.samples) + 2 * _EPS * l2 * norm,
    )


def minimise(design: LinearDesign, l2: float, passes: int) -> Floats:
    """A matrix W near the minimiser of f, by L-BFGS in coordinates that make f about equally curved in all directions.

    The search ends when the gradient proves that the loss is within 1e-8 of the minimum, relative to the loss at W = 0,
    or after ``passes`` passes over the data.
    """
    values, vectors = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(design.mean.gram)))
    shape = product(vectors / np.sqrt(np.maximum(values, 0.0) / design.outputs + l2), vectors.T)
    parameters = torch.zeros(design.outputs, design.width, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [parameters],
        max_iter=8,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    best, spent = (np.inf, np.zeros((design.outputs, design.width))), 0

    def closure() -> float:
        nonlocal best, spent
        matrix = product(parameters.detach().numpy(), shape)
        evaluation = evaluate(design, matrix, l2)
        spent += 1
        norm = float(np.linalg.norm(evaluation.gradient))
        if norm < best[0]:
            best = norm, matrix
        parameters.grad = torch.from_numpy(product(evaluation.gradient, shape))
        return evaluation.loss

    goal = 2 * l2 * 1e-8 * float(np.log(design.outputs))
    while spent < passes and best[0] ** 2 > goal:
        before = best[0]
        search.step(closure)  # type: ignore[no-untyped-call]
        if best[0] == before:
            break  # a whole round of the search brought no improvement: only rounding errors are left
    return best[1]
