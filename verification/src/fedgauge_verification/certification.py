"""Constants that hold at every model, proved from the data: exact for linear regression, bounds for softmax regression.

Under squared error, a federation with one layer is a federation of quadratics, whose constants are eigenvalues. Under
cross-entropy with an L2 term, every assumption of the theory holds at all models, with bounds derived in
docs/theory/softmax.md. With these constants, a theorem is a certified statement about a run on real data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch.nn import functional

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.progress import reported
from fedgauge.base.threads import one_thread, undisturbed
from fedgauge.base.types import Floats, ProgressOption
from fedgauge.federation.identity import check_model, digest_of
from fedgauge.federation.protocols import Federation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.values import Reading
from fedgauge.values import Constants, Estimate, Scope, initial_gap
from fedgauge_verification import regression, softmax
from fedgauge_verification.certified import Certified
from fedgauge_verification.gram import LinearDesign, layer

if TYPE_CHECKING:
    from fedgauge.measurement.session import Session

_EPS = float(np.finfo(np.float64).eps)


@undisturbed
def certify(
    federation: SupervisedFederation,
    *,
    start: torch.Tensor | None = None,
    batch_size: int | None = None,
    radius: float | None = None,
    passes: int = 400,
    progress: ProgressOption = "auto",
) -> Certified:
    """Prove the constants of a federation of linear or softmax regression whose workers have equal weights.

    Args:
        federation: a federation of one Linear layer, under squared error or under cross-entropy with classes.
        start: the flat first model, from which F and d0 are computed; by default, the one of seed 0.
        batch_size: the number of samples in a mini-batch, by which sigma^2 is divided; by default, the federation's.
        radius: a bound on every entry of a model, at least that of the first one. Because of the L2 term, G is known
            only for bounded models; a bound with it is certified only for runs that cannot leave them.
        passes: the largest number of passes over the data to find the minimiser of softmax regression.
        progress: called once, before it begins. By default, a bar is shown on a terminal and in a notebook; None shows
            nothing.

    >>> from torch import nn
    >>> x, y, shards = torch.eye(4), torch.tensor([0, 1, 1, 0]), [[0, 1], [2, 3]]
    >>> made = SupervisedFederation(lambda: nn.Linear(4, 2), functional.cross_entropy, x, y, shards, l2=0.1)
    >>> certified = certify(made)
    >>> L_g = certified.constants["L_g"]
    >>> L_g.kind, round(L_g.value, 6), round(L_g.low, 6)
    ('upper', 0.725, 0.725)
    """
    with one_thread(), reported(progress) as tell:
        tell("certified", 0, None)
        return _certify(federation, start, batch_size, radius, passes)


def gap_at(federation: SupervisedFederation, start: torch.Tensor, least: Estimate) -> Estimate:
    """Prove F for another first model, for one pass over the data.

    Args:
        federation: a federation of linear or softmax regression.
        start: the flat first model.
        least: f_star, as :func:`certify` proved it for the same federation.
    """
    with one_thread():
        design = LinearDesign(federation)
        first = design.matrix(start)
        if federation.loss is functional.cross_entropy:
            evaluation = softmax.evaluate(design, first, federation.l2)
            loss, error = evaluation.loss, evaluation.loss_error
        else:
            loss, error = regression.loss_at(design, first, federation.l2)
    gap = initial_gap(loss, least.low, least.high, rounding=error, method="f(x0) - f*, at the run's first model")
    return replace(gap, scope=Scope(federation.digest, digest_of(start)))


def _certify(
    federation: SupervisedFederation,
    start: torch.Tensor | None,
    batch_size: int | None,
    radius: float | None,
    passes: int,
) -> Certified:
    design = LinearDesign(federation)
    model = federation.start(0) if start is None else check_model(federation, start)
    first = design.matrix(model)
    batch = federation.batch_size if batch_size is None else count("batch_size", batch_size)
    constants = _constants(federation, design, first, batch, radius, passes)
    peak = float(np.abs(first).max(initial=0.0))
    scope = Scope(
        federation=federation.with_batch_size(batch).digest,
        start=digest_of(model),
        seed=0 if start is None else None,
        radius=None if radius is None else float(np.nextafter(radius - peak, 0.0)),
    )
    return replace(constants, constants=constants.constants.within(scope))


def _constants(
    federation: SupervisedFederation, design: LinearDesign, first: Floats, batch: int, radius: float | None, passes: int
) -> Certified:
    if federation.loss is not functional.cross_entropy:
        return _linear(design, first, batch, federation.l2)
    if design.outputs < 2 or federation.targets.dtype != torch.int64:
        raise InputError(
            "Softmax regression can be certified only for two or more classes as whole numbers; recode the labels."
        )
    return _softmax(design, first, batch, federation.l2, radius, passes)


# -- softmax regression ------------------------------------------------------------------------------------------


def _upper(symbol: str, low: float, high: float, method: str) -> Estimate:
    return Estimate(symbol, float(high), float(min(low, high)), float(high), "upper", method)


def _softmax(
    design: LinearDesign, first: Floats, batch: int, l2: float, radius: float | None, passes: int
) -> Certified:
    names = ("L_tilde", "L_g", "L_h")
    methods = (
        "max_i lambda_max(G_i)/2 + l2",
        "lambda_max(G)/2 + l2",
        "root of min_t t^2 + lambda_max(mean_i (lambda_max(G_i)/2 - 2t)_+ G_i/2)",
    )
    ranges = softmax.smoothness(design, l2)
    constants = [_upper(name, *bounds, method) for name, bounds, method in zip(names, ranges, methods, strict=True)]
    constants.append(Estimate.exact("mu", l2, "l2: along equal changes of all classes the data part is flat"))
    zetas, noises = softmax.divergences(design), softmax.variances(design)
    low, high = (np.array(ends) for ends in zip(*zetas, strict=True))
    constants.append(_upper("zeta", low.max(), high.max(), "max_i of the spectral bound on sup |grad F_i - grad f|"))
    low, high = (np.sqrt(np.mean(ends**2)) for ends in (low, high))
    how = "root mean square over workers of the same, each over all models"
    constants.append(_upper("zeta_rms", low, high, how))
    low, high = (np.sqrt(max(ends) / batch) for ends in zip(*noises, strict=True))
    how = f"variance of a sample's gradient over all models, in batches of {batch}"
    constants.append(_upper("sigma", low, high, how))
    if radius is not None:
        peak = float(np.abs(first).max(initial=0.0))
        if positive("radius", radius) <= peak:
            raise InputError(f"radius must be above the largest entry of the first model, {peak:g}, not {radius!r}.")
        largest = (design.mean.peak + l2 * radius) * (1 + 4 * _EPS)
        constants.append(_upper("G", 0.0, largest, f"max |x| + l2 radius, for entries of a model up to {radius:g}"))
    return _solved(design, first, l2, constants, passes)


def _solved(design: LinearDesign, first: Floats, l2: float, constants: list[Estimate], passes: int) -> Certified:
    """Add the constants that depend on the minimiser: f*, F and d0."""
    at_first = softmax.evaluate(design, first, l2)
    if l2 == 0:
        # Without strong convexity, a small gradient does not bound the gap; but cross-entropy is never negative.
        method = "f(x0) - 0: without l2 the gradient bounds no gap, but f >= 0"
        constants.append(initial_gap(at_first.loss, 0.0, rounding=at_first.loss_error, method=method))
        return Certified(design.num_workers, Constants(tuple(constants)), design.flat(first), at_first.loss, np.inf)
    best = softmax.minimise(design, l2, passes)
    at_best = softmax.evaluate(design, best, l2)
    slope = float(np.linalg.norm(at_best.gradient)) + at_best.gradient_error
    gap = slope**2 / (2 * l2) + at_best.loss_error
    near = float(np.linalg.norm(first - best)) * (1 + 8 * _EPS)
    floor, ceiling = at_best.loss - gap, at_best.loss + at_best.loss_error
    method = "f(x0) - f(x) + |grad f(x)|^2/(2 l2)"
    constants += [
        Estimate("f_star", floor, floor, ceiling, "lower", "f(x) - |grad f(x)|^2/(2 l2)"),
        initial_gap(at_first.loss, floor, ceiling, rounding=at_first.loss_error, method=method),
        _upper("d0", max(near - slope / l2, 0.0) ** 2, (near + slope / l2) ** 2, "(|x0 - x| + |grad f(x)|/l2)^2"),
    ]
    return Certified(design.num_workers, Constants(tuple(constants)), design.flat(best), at_best.loss, gap)


# -- linear regression -------------------------------------------------------------------------------------------


def _linear(design: LinearDesign, first: Floats, batch: int, l2: float) -> Certified:
    best, gaps = regression.solve(design, first, l2)
    noise = max(regression.variance(design, first, worker) for worker in range(design.num_workers)) / batch
    constants = (
        *regression.curvature_constants(design, l2),
        *gaps,
        *regression.divergences(design, first),
        regression.at_start("sigma", noise**0.5),
    )
    f_star = gaps[0]
    return Certified(design.num_workers, Constants(constants), design.flat(best), f_star.high, f_star.high - f_star.low)


# -- the reading of fedgauge measure -----------------------------------------------------------------------------


class Regression:
    """What proves constants of models for the rest of fedgauge (see :class:`~fedgauge.measurement.proofs.Prover`)."""

    def __call__(self, session: Session) -> Iterable[Reading]:
        """The constants of linear or softmax regression."""
        federation = session.setup.federation
        if not isinstance(federation, SupervisedFederation):
            raise InputError("Only quadratics, linear and softmax regression can be certified; choose another reading.")
        session.progress("certified", 0, None)
        found = certify(federation, start=session.setup.first_model)
        meaning = (
            "Proved from the data for every model (F and d0 for the run's first model); bounds from these are"
            " certified."
        )
        yield Reading("certified", meaning, found.constants.estimates, {"loss": found.loss, "gap": found.gap})

    def covers(self, federation: Federation) -> bool:
        """Whether it is linear or softmax regression."""
        try:
            return isinstance(federation, SupervisedFederation) and bool(layer(federation))
        except InputError:
            return False

    def gap_at(self, federation: Federation, start: torch.Tensor, least: Estimate) -> Estimate:
        """F at another first model, from a proved f_star."""
        return gap_at(cast(SupervisedFederation, federation), start, least)


reading = Regression()
