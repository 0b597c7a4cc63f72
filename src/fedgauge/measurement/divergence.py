"""How far the workers' gradients diverge: zeta at a global model, and at the local models that the proofs look at.

At a model x, where f = sum_i w_i F_i and w_i = 1/N unless weights are given,

    zeta = max_i |grad F_i(x) - grad f(x)|,  zeta_rms^2 = sum_i w_i |grad F_i(x) - grad f(x)|^2,

and zeta_local^2 is the same sum with each worker's term taken at its own local model. The proofs use nothing else
(docs/theory/setting.md, "Which zeta may be used").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedgauge.base.errors import InputError, count
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Floats
from fedgauge.federation.identity import check_model
from fedgauge.measurement import intervals
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.parts import OUTLIERS, find_outliers
from fedgauge.measurement.passes import Meter, OutOfBudgetError, Passes
from fedgauge.measurement.values import Reading
from fedgauge.simulation.workers import Lane
from fedgauge.values import Estimate, Kind
from fedgauge.values.display import counted

MEANING = "How far the workers' gradients are from their mean at this model; elsewhere they may be further."
ALONE = "There is only one worker, so that zeta is 0 by definition."

_GROUP = 8
"""The number of local models that are held in memory at once."""
_CHOICE = 3
"""The address of the random choice of workers; curvature uses 1 and 2."""


@undisturbed
def divergence(
    meter: Meter,
    model: torch.Tensor,
    *,
    iterates: LocalSteps | None = None,
    at: Sequence[int] = (),
    workers: int = 8,
) -> Reading:
    """Measure zeta and zeta_rms at a model, exactly, and zeta_local at the workers' local models.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat global model.
        iterates: the local steps after which zeta_local is measured; without them, it is left out.
        at: further numbers of local steps after which to measure; zeta_local is the largest found. The proofs need
            k < I.
        workers: the number of workers, drawn uniformly, at whose local models to measure; each costs a pass over all
            workers. Their mean is unbiased and has a 95% interval; with all N workers it is exact.

    Returns:
        The reading; ``details`` has every worker's distance, and the outliers among them.

    >>> from fedgauge import fedavg, random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     reading = divergence(meter, federation.start(0), iterates=LocalSteps(fedavg(0.1), 5))
    >>> [estimate.symbol for estimate in reading.estimates]
    ['zeta', 'zeta_rms', 'zeta_local']
    >>> bool(np.isclose(reading.constants["zeta"].value, federation.zeta(federation.start(0)).max()))
    True
    """
    model = check_model(meter.federation, model)
    N = meter.federation.num_workers
    count("workers", workers)
    if at and iterates is None:
        raise InputError("at needs iterates, whose local steps it counts; pass iterates as well, or leave out at.")
    if N == 1:
        alone = [Estimate(name, 0.0, 0.0, 0.0, "lower", "one worker", {}) for name in _symbols(iterates)]
        return Reading("divergence", MEANING, tuple(alone), {"zeta of each worker": [0.0]}, (ALONE,))
    meter.check_budget(2, "zeta at a model")
    _, gradient = meter.evaluate(model)
    squares, norms = meter.distances(model, gradient)
    each = np.sqrt(squares)
    worst = int(each.argmax())
    size = float(gradient.norm())
    cost = {"gradient passes": 2.0}
    estimates = [
        _exact("zeta", float(each[worst]), "max_i |grad F_i - grad f| at the model", cost),
        _exact("zeta_rms", float(meter.shares @ squares) ** 0.5, "root of sum_i w_i |grad F_i - grad f|^2", cost),
    ]
    limit, outliers = find_outliers(each)
    details: dict[str, Any] = {
        "worker": worst,
        "zeta of each worker": each.tolist(),
        "gradient norm of each worker": np.sqrt(norms).tolist(),
        "gradient norm": size,
        "outliers": {"workers": outliers, "limit": limit, "rule": OUTLIERS},
    }
    notes = []
    if iterates is not None:
        try:
            local, details["local"] = _local(meter, model, iterates, at, min(workers, N))
            estimates.append(local)
        except OutOfBudgetError as error:
            notes.append(f"{error} There is no zeta_local.")
    return Reading("divergence", MEANING, tuple(estimates), details, tuple(notes))


def _symbols(iterates: LocalSteps | None) -> tuple[str, ...]:
    return ("zeta", "zeta_rms") if iterates is None else ("zeta", "zeta_rms", "zeta_local")


def _exact(symbol: str, value: float, method: str, cost: dict[str, float]) -> Estimate:
    """An estimate that is exact at the model measured, and so a lower bound of the supremum over all models."""
    return Estimate(symbol, value, value, value, "lower", method, cost)


def _local(
    meter: Meter, model: torch.Tensor, iterates: LocalSteps, at: Sequence[int], number: int
) -> tuple[Estimate, dict[str, Any]]:
    """zeta_local, the largest over the numbers of local steps, and what was found at each of them."""
    N, before = meter.federation.num_workers, meter.cost["gradient passes"]
    generator = Streams(meter.seed, Purpose.MEASURE).at(round=_CHOICE)
    chosen = generator.permutation(N)[:number]
    steps = sorted({*at, iterates.steps})
    intervals_of: dict[int, tuple[intervals.Interval, dict[int, float]]] = {}
    for k in steps:
        try:
            squares = _at_local_models(meter, model, iterates.after(k), chosen)
        except OutOfBudgetError:
            if not intervals_of:
                raise
            break
        examined = chosen[: len(squares)]
        # Each term is multiplied by N w_i, so that the mean over the drawn workers is unbiased for the sum over all.
        mean = intervals.of_mean(squares * meter.shares[examined] * N, population=N)
        intervals_of[k] = mean, dict(sorted(zip(examined.tolist(), np.sqrt(squares).tolist(), strict=True)))
    largest = max(intervals_of, key=lambda k: float(intervals_of[k][0].value))
    value, low, high = map(float, intervals_of[largest][0].root())
    number = len(intervals_of[largest][1])
    cost = {"gradient passes": meter.cost["gradient passes"] - before}
    method = f"|grad F_i - grad f| at x_i after {counted(largest, 'local step')}, {number} of {N} workers"
    kind: Kind = "lower" if number == N else "sample"
    details = {
        "algorithm": {"name": iterates.algorithm.name, **iterates.algorithm.parameters},
        "round": iterates.round,
        "at": [
            {
                "local_steps": k,
                "zeta2": mean._asdict(),
                "workers": list(each),
                "zeta of each worker": list(each.values()),
            }
            for k, (mean, each) in intervals_of.items()
        ],
    }
    return Estimate("zeta_local", value, low, high, kind, method, cost), details


def _at_local_models(meter: Meter, model: torch.Tensor, iterates: LocalSteps, chosen: npt.NDArray[np.int64]) -> Floats:
    """|grad F_i(x_i) - grad f(x_i)|^2 for the chosen workers in turn, until the budget is used up.

    The workers are in random order, so that they are a uniform draw wherever the budget ends.
    """
    share = 1 / meter.federation.num_workers
    squares: list[float] = []
    try:
        for first in range(0, len(chosen), _GROUP):
            group = chosen[first : first + _GROUP]
            # The local steps, and every worker's gradient where they end.
            cost = share * len(group) * (1 + iterates.steps * meter.sample_passes)
            parts = meter.ask("gradient passes", cost, _own, model, iterates, workers=group)
            by_worker = {worker: (x, slope) for part in parts for worker, x, slope in zip(*part, strict=True)}
            for worker in group.tolist():
                x, slope = by_worker[worker]
                squares.append(float((slope.double() - meter.evaluate(x)[1]).square().sum()))
    except OutOfBudgetError:
        if len(squares) < 2:
            raise
    return np.array(squares)


def _own(
    passes: Passes, lane: Lane, model: torch.Tensor, iterates: LocalSteps
) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """The local models of a lane's workers, and their own gradients there."""
    models, slopes = [], []
    for part in lane.chunks(passes.chunk):
        models.append(iterates.models(passes, part, model))
        slopes.append(passes.federation.gradients(models[-1], part.cohort.workers))
    return lane.cohort.workers.tolist(), torch.cat(models), torch.cat(slopes)
