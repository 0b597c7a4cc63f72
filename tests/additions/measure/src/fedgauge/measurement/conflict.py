"""How many workers' gradients point against that of f: the conflicting gradients of Yu et al. 2020, at a model."""

from __future__ import annotations

import torch

from fedgauge.base.threads import undisturbed
from fedgauge.federation.identity import check_model
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.values import Reading
from fedgauge.values import Estimate

MEANING = "The share of the workers, by weight, for whom a small step along -grad f at this model raises F_i."


@undisturbed
def conflict(meter: Meter, model: torch.Tensor) -> Reading:
    """Measure the weight of the workers with <grad F_i, grad f> < 0 at a model.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat model.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.0, linear_spread=0.0)
    >>> with Meter(federation) as meter:
    ...     conflict(meter, federation.start(0)).constants["conflict"].value
    0.0
    """
    model = check_model(meter.federation, model)
    _, gradient = meter.evaluate(model)
    gaps, norms = meter.distances(model, gradient)
    # |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>
    against = norms + float(gradient.double().square().sum()) < gaps
    share = float(meter.shares[against].sum())
    method = "all workers' gradients"
    return Reading("conflict", MEANING, (Estimate.exact("conflict", share, method),), {"workers": against.tolist()})
