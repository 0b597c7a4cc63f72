"""The constants at one model, from the curvature there.

At a single model, the tight constants of the theory's assumptions are eigenvalues:

    L_g = |H|,  L_tilde = max_i |H_i|,  L_h = sqrt(lambda_max(sum_i w_i (H_i - H)^2)),

where H_i is the Hessian of F_i at the model and H is the Hessian of f (docs/theory/constants.md). The constants in the
assumptions are suprema over all models. Like everything that is measured at single models, these are lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Floats
from fedgauge.measurement.intervals import CONFIDENCE
from fedgauge.measurement.lanczos import Ritz, largest
from fedgauge.measurement.passes import Meter, OutOfBudgetError, why_ended
from fedgauge.measurement.values import Reading
from fedgauge.values import Estimate

MEANING = "The tight constants at this one model, from its Hessians; elsewhere they may be larger."


@undisturbed
def curvature(meter: Meter, model: torch.Tensor, tolerance: float | None = None) -> Reading:
    """Measure L_g, L_h and L_tilde at a model.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat model.
        tolerance: the tolerance for the residuals of eigenvectors, relative to the eigenvalue. By default, 1e-9 for
            models in float64 and 1e-3 in float32. The eigenvalues are then accurate to about its square.

    Returns:
        The reading. Its directions are the worst ones, and ``details`` has the ratios that they attain.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     L_h = curvature(meter, federation.start(0)).constants["L_h"].value
    >>> abs(L_h - federation.constants()["L_h"].value) < 1e-9
    True
    """
    if tolerance is None:
        tolerance = 1e-9 if model.dtype == torch.float64 else 1e-3
    eigenvalues: dict[str, Ritz] = {}
    estimates: list[Estimate] = []
    notes: list[str] = []
    details: dict[str, Any] = {"confidence": CONFIDENCE, "tolerance": tolerance}
    complete = True
    try:
        for symbol, (method, solve) in _SOLVERS.items():
            before = meter.cost["Hessian passes"]
            eigenvalues[symbol], more = solve(meter, model, tolerance)
            details |= more
            ritz, cost = eigenvalues[symbol], {"Hessian passes": meter.cost["Hessian passes"] - before}
            estimates.append(Estimate(symbol, ritz.value, ritz.value, ritz.high, "lower", method, cost))
            if not ritz.converged:
                notes.append(f"{symbol} did not converge within the tolerance; its value is still a lower bound.")
        details["residuals"] = {symbol: ritz.residual for symbol, ritz in eigenvalues.items()}
        details["attained"] = _attained(meter, model, eigenvalues, details["L_tilde"]["worker"])
    except (OutOfBudgetError, KeyboardInterrupt) as reason:
        missing = [symbol for symbol in _SOLVERS if symbol not in eigenvalues] or ["what the directions attain"]
        notes.append(f"Not measured: {', '.join(missing)}; {why_ended(reason)}.")
        complete = False
    directions = {symbol: ritz.vector for symbol, ritz in eigenvalues.items()}
    return Reading("curvature", MEANING, tuple(estimates), details, tuple(notes), directions, complete)


Found = tuple[Ritz, dict[str, Any]]


def _operator(times: Callable[..., torch.Tensor], model: torch.Tensor) -> Callable[[Floats], Floats]:
    """A product with torch vectors, as a product with numpy vectors."""
    return lambda vector: times(model, torch.from_numpy(vector).to(model)).cpu().numpy()


def _global(meter: Meter, model: torch.Tensor, tolerance: float) -> Found:
    generator = Streams(meter.seed, Purpose.MEASURE).at(round=1)
    return largest(_operator(meter.hessian, model), len(model), tolerance, generator), {}


def _deviation(meter: Meter, model: torch.Tensor, tolerance: float) -> Found:
    generator = Streams(meter.seed, Purpose.MEASURE).at(round=2)
    operator = _operator(meter.squared_deviation, model)
    ritz = largest(operator, len(model), tolerance, generator, positive=True)
    return ritz._replace(value=ritz.value**0.5, high=ritz.high**0.5), {}


def _local(meter: Meter, model: torch.Tensor, tolerance: float) -> Found:
    each = meter.norms(model, tolerance)
    worst = int(np.argmax([ritz.value for ritz in each]))
    # Judging by the upper ends, any worker may have the largest norm.
    ritz = each[worst]._replace(high=max(ritz.high for ritz in each))
    return ritz, {"L_tilde": {"worker": worst, "of each worker": [ritz.value for ritz in each]}}


_SOLVERS: dict[str, tuple[str, Callable[[Meter, torch.Tensor, float], Found]]] = {
    "L_g": ("|H| by Lanczos", _global),
    "L_h": ("sqrt(lambda_max(mean_i (H_i - H)^2)) by Lanczos", _deviation),
    "L_tilde": ("max_i |H_i| by Lanczos", _local),
}


def _attained(meter: Meter, model: torch.Tensor, worst: Mapping[str, Ritz], worker: int) -> dict[str, float]:
    """The ratios that the worst directions attain by the definitions, from exact gradients at models close together."""
    # At this distance, rounding and curvature each cost about half the digits of a difference of gradients.
    length = torch.finfo(model.dtype).eps ** 0.5 * max(float(model.double().norm()), 1.0)
    values: dict[str, float] = {}
    _, gradient = meter.evaluate(model)
    for symbol in ("L_g", "L_tilde"):
        moved = (model.double() + length * torch.from_numpy(worst[symbol].vector).to(model.device)).to(model.dtype)
        distance = float((moved.double() - model.double()).norm())
        if symbol == "L_g":
            change = meter.evaluate(moved)[1] - gradient
        else:
            both = torch.stack([moved, model])
            slopes = meter.federation.gradients(both, np.array([worker, worker])).double()
            change = slopes[0] - slopes[1]
        values[symbol] = float(change.norm()) / distance
    if meter.rows_fit:
        rows = meter.deviations(model, torch.from_numpy(worst["L_h"].vector).to(model))
        shares = torch.from_numpy(meter.shares).to(model.device)
        size = float((shares @ rows.square().sum(dim=1)).sqrt())
        if size > 0:
            # The displaced models are rounded; their mean is then off by no more than rounding.
            change = meter.displaced(model, rows * (length / size)) - gradient
            values["L_h"] = float(change.norm()) / length
    return values
