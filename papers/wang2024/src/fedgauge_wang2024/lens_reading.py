"""Other measures of heterogeneity, with one interface, computed from shared passes over the data.

A lens is a function of a :class:`Context`, which computes gradients, one round of local steps, Hessians and label
distributions once for all lenses that need them. Below, w_i are the weights, f = sum_i w_i F_i, x_i are the local
models after I steps with rate gamma from the model x, and x_hat = sum_i w_i x_i:

    zeta       max_i |∇F_i(x) - ∇f(x)|
    zeta_rms   sqrt(sum_i w_i |∇F_i(x) - ∇f(x)|^2)
    B          sqrt(sum_i w_i |∇F_i(x)|^2) / |∇f(x)|
    diversity  sum_i |w_i ∇F_i(x)|^2 / |∇f(x)|^2, which with equal weights is B^2/N
    rho        |x_hat - x| / (gamma I)
    drift      |x_hat - y| / (gamma I), y the model after the same I steps taken together: all workers at one model
    alpha_h    N |sum_i w_i e_i|^2 / sum_i w_i |e_i|^2, e_i = ∇F_i(x_i) - ∇F_i(x_hat); 0 to N
    L_h        |sum_i w_i e_i| / sqrt(sum_i w_i |x_i - x_hat|^2)
    delta      max_i |H_i - H|, Hessians at x

rho is defined at a minimiser, where it equals drift with exact gradients. Elsewhere rho contains the gradient of f,
and drift does not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from fedgauge.algorithms import is_plain
from fedgauge.base.errors import InputError, count, nearest, positive
from fedgauge.base.threads import undisturbed
from fedgauge.data.dataset import Labels
from fedgauge.data.partition import Partition
from fedgauge.measurement.passes import Meter, OutOfBudgetError, why_ended
from fedgauge.measurement.values import Reading
from fedgauge.values import Estimate
from fedgauge.values.display import counted
from fedgauge_wang2024.lens_context import Context, Needs
from fedgauge_wang2024.lens_passes import Steps

if TYPE_CHECKING:
    from fedgauge.measurement.session import Session

MEANING = "Measures of heterogeneity from the literature at this one model, each by its own definition."


class Missing(NamedTuple):
    """Why a lens shows nothing here."""

    reason: str


class Lens(NamedTuple):
    """One measure of heterogeneity.

    Attributes:
        symbol: the symbol of the measure, as in :mod:`fedgauge.base.symbols`.
        says: what a large value means, in one sentence.
        source: the publication that defines it.
        needs: the kind of data from which it is computed.
        look: the function that computes it.
    """

    symbol: str
    says: str
    source: str
    needs: Needs
    look: Callable[[Context], Estimate | Missing]


def _exact(symbol: str, value: float, method: str) -> Estimate:
    return Estimate.exact(symbol, value, method)


def _lower(symbol: str, value: float, method: str) -> Estimate:
    """An estimate at one model of a constant that is a supremum over models."""
    return Estimate(symbol, value, value, math.inf, "lower", method)


def _zeta(context: Context) -> Estimate:
    return _lower("zeta", float(context.gradients[1].max()) ** 0.5, "exact gradients at the model")


def _zeta_rms(context: Context) -> Estimate:
    value = float(context.meter.shares @ context.gradients[1]) ** 0.5
    return _lower("zeta_rms", value, "exact gradients at the model")


_NO_GRADIENT = Missing("f's gradient is zero at this model, so there is nothing to divide by.")


def _dissimilarity(context: Context) -> Estimate | Missing:
    if context.grad2 == 0:
        return _NO_GRADIENT
    value = (float(context.meter.shares @ context.gradients[2]) / context.grad2) ** 0.5
    return _exact("B", value, "exact gradients at the model")


def _diversity(context: Context) -> Estimate | Missing:
    if context.grad2 == 0:
        return _NO_GRADIENT
    value = float(context.meter.shares**2 @ context.gradients[2]) / context.grad2
    return _exact("diversity", value, "exact gradients at the model")


def _stepped(context: Context, symbol: str, value: float) -> Estimate:
    gamma, number, exact = context.stepping
    how = "exact gradients" if exact else "mini-batches"
    method = f"{counted(number, 'local step')} of rate {gamma:g} with {how}"
    return _exact(symbol, value, method) if exact else Estimate(symbol, value, 0.0, math.inf, "sample", method)


def _rho(context: Context) -> Estimate:
    gamma, number, _ = context.stepping
    move = context.local.mean - context.model.double()
    return _stepped(context, "rho", float(move.norm()) / (gamma * number))


def _drift(context: Context) -> Estimate:
    gamma, number, _ = context.stepping
    gap = context.local.mean - context.joint
    return _stepped(context, "drift", float(gap.norm()) / (gamma * number))


_AGREE = Missing("The local models agree after their steps, so there is nothing to divide by.")


def _alpha(context: Context) -> Estimate | Missing:
    errors = context.local.errors
    if errors.squares == 0:
        return _AGREE
    value = context.meter.federation.num_workers * float(errors.mean @ errors.mean) / errors.squares
    return _stepped(context, "alpha_h", value)


def _secant(context: Context) -> Estimate | Missing:
    errors, spread = context.local.errors, context.local.spread
    if spread == 0:
        return _AGREE
    return _lower("L_h", float(errors.mean.norm()) / spread**0.5, "ratio at one round's local models")


def _steepest(context: Context) -> Estimate | Missing:
    if context.local.errors.steepest == 0:
        return _AGREE
    return _lower("L_tilde", context.local.errors.steepest, "largest ratio at one round's local models")


def _delta(context: Context) -> Estimate:
    value = max(ritz.value for ritz in context.offsets)
    high = max(ritz.high for ritz in context.offsets)
    return Estimate("delta", value, value, max(high, value), "lower", "max_i |H_i - H| at the model by Lanczos")


def _label(symbol: str) -> Callable[[Context], Estimate | Missing]:
    return lambda context: _exact(symbol, context.distances[symbol][1], "label counts")


_ROWS = (
    Lens("zeta", "Some worker's gradient differs.", "the paper, Assumption 3.3", "gradients", _zeta),
    Lens("zeta_rms", "Workers' gradients differ.", "the paper, Assumption 3.3, averaged", "gradients", _zeta_rms),
    Lens(
        "B",
        "Workers' gradients are long compared with their mean.",
        "Li et al. 2020 (FedProx)",
        "gradients",
        _dissimilarity,
    ),
    Lens(
        "diversity",
        "Workers' gradients cancel in their sum.",
        "Yin et al. 2018",
        "gradients",
        _diversity,
    ),
    Lens("rho", "The averaged local models move far.", "Wang et al. 2022, Equation (15)", "local models", _rho),
    Lens(
        "drift",
        "Local steps lead to a different model from joint steps.",
        "fedgauge",
        "local models",
        _drift,
    ),
    Lens(
        "alpha_h",
        "The errors that local steps make add up instead of cancelling.",
        "after Das et al. 2022 (FedGLOMO)",
        "local models",
        _alpha,
    ),
    Lens(
        "L_h",
        "The averaged gradient differs from the gradient at the mean model.",
        "the paper, Proposition 5.2",
        "local models",
        _secant,
    ),
    Lens("L_tilde", "Some worker's gradient changes fast.", "the paper, Assumption 3.1", "local models", _steepest),
    Lens(
        "delta",
        "Some worker's Hessian is far from f's.",
        "Karimireddy et al. 2021 (MIME); Shamir et al. 2014",
        "Hessians",
        _delta,
    ),
    Lens("label_js", "Labels are spread unevenly.", "Jensen-Shannon distance", "labels", _label("label_js")),
    Lens("label_hellinger", "Labels are spread unevenly.", "Hellinger distance", "labels", _label("label_hellinger")),
    Lens("label_emd", "Labels are spread unevenly.", "Zhao et al. 2018, halved", "labels", _label("label_emd")),
)

LENSES: Mapping[str, Lens] = {lens.symbol: lens for lens in _ROWS}


@undisturbed
def lenses(
    meter: Meter,
    model: torch.Tensor,
    *,
    gamma: float | None = None,
    local_steps: int | None = None,
    exact: bool = False,
    partition: Partition | None = None,
    labels: Labels | None = None,
    only: Iterable[str] | None = None,
    tolerance: float | None = None,
) -> Reading:
    """Measure the heterogeneity of a federation with the lenses.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat model.
        gamma: the rate of the local steps, which some lenses need; goes with ``local_steps``.
        local_steps: the number I of local steps.
        exact: whether local steps use exact gradients; their lenses are then exact, but each step is a pass over all
            data.
        partition: which worker has which examples, for the distances of labels; goes with ``labels``.
        labels: the labels of all examples.
        only: the names of the lenses to use, as in :data:`LENSES`; by default, all whose data is available. Those that
            need Hessians take far longer than the others.
        tolerance: the tolerance for eigenvectors of Hessians, as for
            :func:`fedgauge.measurement.curvature.curvature`.

    Returns:
        The reading; its notes say which lenses could not be used, and why.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     reading = lenses(meter, federation.start(0), gamma=0.1, local_steps=5)
    >>> reading.constants["B"].value >= 1, 0 <= reading.constants["alpha_h"].value <= 4
    (True, True)
    """
    if (gamma is None) != (local_steps is None) or (partition is None) != (labels is None):
        raise InputError("Lenses need gamma and local_steps together, and partition and labels together; pass both.")
    steps = None
    if gamma is not None and local_steps is not None:
        steps = Steps(positive("gamma", gamma), count("local_steps", local_steps), exact)
    if tolerance is None:
        tolerance = 1e-9 if model.dtype == torch.float64 else 1e-3
    context = Context(meter, model, steps, partition, labels, tolerance)
    names = list(LENSES if only is None else only)
    estimates: list[Estimate] = []
    notes: list[str] = []
    for name in names:
        if name not in LENSES:
            raise InputError(f"There is no lens {name!r}; {nearest(name, LENSES)}")
        if not context.has(LENSES[name].needs):
            needed = {"labels": "partition and labels", "local models": "gamma and local_steps"}[LENSES[name].needs]
            if only is not None:
                raise InputError(f"The lens {name} needs {needed}; pass them.")
            notes.append(f"{name} is not shown: it needs {needed}.")
    able = [name for name in names if context.has(LENSES[name].needs)]
    complete = True
    for place, name in enumerate(able):
        try:
            reading = _counted(meter, LENSES[name], context)
        except (OutOfBudgetError, KeyboardInterrupt) as reason:
            notes.append(f"Not measured: {', '.join(able[place:])}; {why_ended(reason)}.")
            complete = False
            break
        if isinstance(reading, Missing):
            notes.append(f"{name} is not shown: {reading.reason}")
        else:
            estimates.append(reading)
    return Reading("lenses", MEANING, tuple(estimates), _details(context), tuple(notes), complete=complete)


def _counted(meter: Meter, lens: Lens, context: Context) -> Estimate | Missing:
    """The estimate of a lens, with the cost that it adds to that of the lenses before it."""
    before = dict(meter.cost)
    reading = lens.look(context)
    if isinstance(reading, Missing):
        return reading
    cost = {kind: float(spent - before.get(kind, 0)) for kind, spent in meter.cost.items()}
    return dataclasses.replace(reading, cost={kind: spent for kind, spent in cost.items() if spent})


def _details(context: Context) -> dict[str, Any]:
    """The data behind the numbers, as far as it was computed, and the title of their table."""
    known = vars(context)
    details: dict[str, Any] = {"table": "Other lenses"}
    if "gradients" in known:
        details["grad2"] = context.grad2
    if "local" in known:
        details["local steps"] = {**context.stepping._asdict(), "spread": context.local.spread}
    if "offsets" in known:
        values = [ritz.value for ritz in context.offsets]
        details["delta"] = {"worker": int(np.argmax(values)), "of each worker": values}
    if "distances" in known:
        details["labels"] = {
            name: {"mean": mean, "max": worst, "of each worker": each.tolist()}
            for name, (each, mean, worst) in context.distances.items()
        }
    return details


def reading(session: Session) -> Iterable[Reading]:
    """The reading ``lenses`` of ``fedgauge measure``."""
    setup, steps = session.setup, session.setup.fixed_steps
    # Lenses of local models are about plain SGD.
    equal = steps if isinstance(steps, int) and is_plain(setup.algorithm.parameters) else None
    yield lenses(
        session.meter,
        session.model,
        gamma=setup.algorithm.parameters.get("gamma") if equal else None,
        local_steps=equal,
        partition=setup.partition,
        labels=setup.dataset.train_labels if setup.dataset and setup.dataset.has_labels else None,
        tolerance=session.options.tolerance,
    )
