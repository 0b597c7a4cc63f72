"""The constants at one model, from the curvature there.

At a point the assumptions of the theory have tight constants, which are eigenvalues:

    L_g = |H|,  L_tilde = max_i |H_i|,  L_h = sqrt(lambda_max(sum_i w_i (H_i - H)^2)),

with H_i the Hessian of F_i at the model and H that of f (docs/theory.md). The constants of the assumptions are suprema
over all models, so that these are lower bounds of them, as all that is measured at points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedgauge.measure.lanczos import CONFIDENCE, Floats, Ritz, largest
from fedgauge.measure.meter import Meter
from fedgauge.measure.reading import Reading
from fedgauge.randomness import Purpose, Streams
from fedgauge.values import Estimate

MEANING = "The tight constants at this one model, from its Hessians; elsewhere they may be larger."


def curvature(meter: Meter, model: torch.Tensor, tolerance: float | None = None) -> Reading:
    """Measure L_g, L_h and L_tilde at a model.

    Args:
        meter: the workers.
        model: the flat model.
        tolerance: of the eigenvectors' residuals, as a part of the eigenvalue; 1e-9 for models in float64 and 1e-3 in
            float32 if not given. The eigenvalues are then accurate to about its square.

    Returns:
        The reading; its directions are the worst ones, and ``details`` holds what they attain by the definition.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     found = curvature(meter, federation.start(0)).constants["L_h"].value
    >>> abs(found - federation.constants()["L_h"].value) < 1e-9
    True
    """
    if tolerance is None:
        tolerance = 1e-9 if model.dtype == torch.float64 else 1e-3
    streams = Streams(meter.seed, Purpose.MEASURE)

    def operator(times: Any) -> Any:
        return lambda vector: times(model, torch.from_numpy(vector).to(model)).cpu().numpy()

    before = meter.cost["Hessian passes"]
    whole = largest(operator(meter.hessian), len(model), tolerance, streams.at(round=1))
    estimates = [_estimate(meter, "L_g", whole, "|H| by Lanczos", before)]
    before = meter.cost["Hessian passes"]
    spread = largest(operator(meter.squared_deviation), len(model), tolerance, streams.at(round=2), positive=True)
    spread = spread._replace(value=max(spread.value, 0.0) ** 0.5, high=spread.high**0.5)
    estimates.append(_estimate(meter, "L_h", spread, "sqrt(lambda_max(mean (H_i - H)^2)) by Lanczos", before))
    before = meter.cost["Hessian passes"]
    each = meter.norms(model, tolerance)
    worst = int(np.argmax([ritz.value for ritz in each]))
    top = each[worst]._replace(high=max(ritz.high for ritz in each))
    estimates.append(_estimate(meter, "L_tilde", top, "max_i |H_i| by Lanczos", before))
    directions = {"L_g": whole.vector, "L_h": spread.vector, "L_tilde": top.vector}
    details = {
        "confidence": CONFIDENCE,
        "tolerance": tolerance,
        "attained": _attained(meter, model, directions, worst),
        "L_tilde": {"worker": worst, "of each worker": [ritz.value for ritz in each]},
        "residuals": {"L_g": whole.residual, "L_h": spread.residual, "L_tilde": top.residual},
    }
    notes = [
        f"{name} did not settle within the stated tolerance; its value is still a lower bound."
        for name, ritz in (("L_g", whole), ("L_h", spread), ("L_tilde", top))
        if not ritz.converged
    ]
    return Reading("curvature", MEANING, tuple(estimates), details, tuple(notes), directions)


def _estimate(meter: Meter, symbol: str, ritz: Ritz, method: str, before: float) -> Estimate:
    cost = {"Hessian passes": meter.cost["Hessian passes"] - before}
    return Estimate(symbol, ritz.value, ritz.value, max(ritz.high, ritz.value), "lower", method, cost)


def _attained(meter: Meter, model: torch.Tensor, directions: dict[str, Floats], worker: int) -> dict[str, float]:
    """What the worst directions attain by the definitions: models set apart by a small distance, exact gradients."""
    # Rounding loses about half the digits of a difference of gradients at this distance, and curvature as many.
    length = torch.finfo(model.dtype).eps ** 0.5 * max(float(model.double().norm()), 1.0)
    found: dict[str, float] = {}
    _, gradient = meter.evaluate(model)
    for symbol in ("L_g", "L_tilde"):
        moved = (model.double() + length * torch.from_numpy(directions[symbol]).to(model.device)).to(model.dtype)
        distance = float((moved.double() - model.double()).norm())
        if symbol == "L_g":
            change = meter.evaluate(moved)[1] - gradient
        else:
            both = torch.stack([moved, model])
            slopes = meter.federation.gradients(both, np.array([worker, worker])).double()
            change = slopes[0] - slopes[1]
        found[symbol] = float(change.norm()) / distance
    if meter.rows_fit:
        rows = meter.deviations(model, torch.from_numpy(directions["L_h"]).to(model))
        shares = torch.from_numpy(meter.shares).to(model.device)
        size = float((shares @ rows.square().sum(dim=1)).sqrt())
        if size > 0:
            # As the models are rounded, so is what they deviate by; their mean is then off by no more than rounding.
            change = meter.displaced(model, rows * (length / size)) - gradient
            found["L_h"] = float(change.norm()) / length
    return found
