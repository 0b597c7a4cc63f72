"""Divergence and deviation from random parts of the data, without bias from the sampling.

The squared norm of a noisy vector is on average too large by the variance of the noise. The inner product of two
vectors with independent noise is not. Two independent subsets A and B of every worker's samples give

    zeta_rms^2:  sum_i w_i <g_iA - g_A, g_iB - g_B>,    |grad f|^2:  <g_A, g_B>,    deviation2:  <dev_A, dev_B>,

all unbiased (docs/theory/estimates.md). They are repeated with fresh subsets, and the repetitions give the interval.
Memory grows with the size of the subsets, but not with the number of workers or of all samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Floats
from fedgauge.federation.identity import check_model
from fedgauge.federation.protocols import HasSubsets, Rows
from fedgauge.measurement import intervals
from fedgauge.measurement.divergence import ALONE
from fedgauge.measurement.intervals import Interval
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.passes import Meter, OutOfBudgetError, Passes
from fedgauge.measurement.values import Reading
from fedgauge.simulation.workers import Lane, Spread
from fedgauge.values import Estimate

DIVERGENCE = "An unbiased estimate of the divergence at this model from parts of the data, with a 95% interval."
DEVIATION = "An unbiased estimate of how the averaged gradient deviates at local models, which bounds L_h from below."

_TWO = "two repetitions, the least that has an interval"
_LEAST = 20
"""The least number of repetitions before the interval is checked: with fewer, it is too often narrow by chance."""


class Repeated(NamedTuple):
    """Repetitions (rows) of several quantities (columns), what they cost, and why they ended early if they did."""

    values: Floats
    cost: Mapping[str, float]
    notes: tuple[str, ...]


@undisturbed
def sampled_divergence(
    meter: Meter, model: torch.Tensor, *, size: int | float = 0.01, tolerance: float = 0.1, most: int = 200
) -> Reading:
    """Estimate zeta_rms and the squared norm of f's gradient at a model from random parts of the data.

    Args:
        meter: the meter of a federation with data.
        model: the flat model.
        size: the number of samples of each worker in a subset, or a fraction of all its samples as a float. A
            repetition takes two subsets: with 0.01 it costs 0.02 gradient passes. Products of very small subsets are
            skewed, and intervals from few of them are too narrow (docs/theory/estimates.md); a few dozen
            samples per worker are enough.
        tolerance: stop when the interval of zeta_rms^2 extends no further than this fraction of it to either side.
        most: the largest number of repetitions.

    Returns:
        The reading, from as many repetitions as the meter's budget allows; ``details`` has the unbiased estimates of
        the squares, which may be negative.

    >>> from torch import nn
    >>> from fedgauge.federation.supervised import SupervisedFederation
    >>> x, y, shards = torch.randn(80, 3), torch.arange(80) % 2, [range(40), range(40, 80)]
    >>> federation = SupervisedFederation(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, x, y, shards)
    >>> with Meter(federation) as meter:
    ...     reading = sampled_divergence(meter, federation.start(0), size=0.25, most=20)
    >>> [estimate.symbol for estimate in reading.estimates], reading.details["repetitions"] <= 20
    (['zeta_rms', 'grad2'], True)
    """
    model = check_model(meter.federation, model)
    part = _part(meter, size)

    def once(repetition: int) -> tuple[float, float]:
        products, *sides = zip(*meter.ask("gradient passes", 2 * part, _halves, model, size, repetition), strict=True)
        first, second = (torch.stack(side).sum(dim=0) for side in sides)
        together = float(first @ second)
        # The divergence of a single worker is exactly 0, without rounding errors.
        return sum(products) - together if meter.federation.num_workers > 1 else 0.0, together

    meter.check_budget(4 * part, _TWO)
    repeated = _repeat(meter, once, tolerance, most)
    zeta2, grad2 = (intervals.of_mean(column) for column in repeated.values.T)
    method = f"cross products of {len(repeated.values)} pairs of subsets"
    estimates = (
        _estimate("zeta_rms", zeta2.root(), method, repeated.cost),
        _estimate("grad2", Interval(*np.maximum(grad2, 0.0)), method, repeated.cost),
    )
    details = {**_settings(repeated, size, part), "zeta_rms2": zeta2._asdict(), "grad2": grad2._asdict()}
    notes = repeated.notes
    if meter.federation.num_workers == 1:
        notes = (*notes, ALONE)
    elif zeta2.low <= 0:
        notes = (
            *notes,
            "zeta_rms cannot be distinguished from 0; allow more samples, or more repetitions.",
        )
    return Reading("sampled divergence", DIVERGENCE, estimates, details, notes)


@undisturbed
def sampled_deviation(
    meter: Meter,
    model: torch.Tensor,
    local: LocalSteps | torch.Tensor,
    *,
    size: int | float = 0.01,
    tolerance: float = 0.1,
    most: int = 200,
) -> Reading:
    """Estimate deviation2 at the workers' local models, and its ratio to their spread, from parts of the data.

    Args:
        meter: the meter of a federation with data.
        model: the flat global model.
        local: the local steps that lead to the local models, which are computed again for every repetition so that
            none is kept; or the local models themselves, one row per worker.
        size: the size of a subset, as for :func:`sampled_divergence`; a repetition takes four subset gradients of each
            worker.
        tolerance: stop when the interval of deviation2 extends no further than this fraction of it to either side.
        most: the largest number of repetitions.

    Returns:
        The reading, with deviation2, the spread (exact, of these local models) and L_h, the root of their ratio.
    """
    model = check_model(meter.federation, model)
    part, N = _part(meter, size), meter.federation.num_workers
    rows, steps, cost = None, None, 4 * part
    if isinstance(local, LocalSteps):
        steps, cost = local, cost + local.steps * meter.sample_passes
    else:
        if local.shape != (N, len(model)):
            raise InputError(
                f"local must have one row of {len(model)} numbers for each of {N} workers, not the shape"
                f" {tuple(local.shape)}."
            )
        rows = local.to(model)
    meter.check_budget(3 * cost - 4 * part, _TWO)
    spread = Spread()
    for lane in meter.ask("gradient passes", cost - 4 * part, _spread, model, steps, rows=rows):
        spread.add(lane)
    assert spread.mean is not None
    mean, apart = spread.mean.to(model.dtype), spread.squares / spread.weight
    if not apart > 0:
        raise InputError("The local models do not differ, so nothing deviates; take at least one local step.")

    def once(repetition: int) -> tuple[float]:
        parts = meter.ask("gradient passes", cost, _deviations, model, mean, steps, size, repetition, rows=rows)
        first, second = (torch.stack(side).sum(dim=0) for side in zip(*parts, strict=True))
        return (float(first @ second),)

    repeated = _repeat(meter, once, tolerance, most)
    deviation2 = intervals.of_mean(repeated.values[:, 0])
    method = f"cross products of {len(repeated.values)} pairs of subsets"
    ratio = Interval(*(end / apart for end in deviation2)).root()
    estimates = (
        _estimate("deviation2", Interval(*np.maximum(deviation2, 0.0)), method, repeated.cost),
        Estimate.exact("spread", apart, "of these local models"),
        _estimate("L_h", ratio, f"sqrt(deviation2 / spread); {method}", repeated.cost),
    )
    details = {**_settings(repeated, size, part), "deviation2": deviation2._asdict(), "spread": apart}
    return Reading("sampled deviation", DEVIATION, estimates, details, repeated.notes)


def _settings(repeated: Repeated, size: int | float, part: float) -> dict[str, Any]:
    return {"confidence": intervals.CONFIDENCE, "size": size, "part": part, "repetitions": len(repeated.values)}


def _estimate(symbol: str, interval: Interval, method: str, cost: Mapping[str, float]) -> Estimate:
    value, low, high = map(float, interval)
    return Estimate(symbol, value, low, high, "sample", method, cost)


def _part(meter: Meter, size: int | float) -> float:
    """The fraction of all samples in a subset, which is the cost of a pass over it."""
    N, federation = meter.federation.num_workers, _subsets(meter.federation)
    taken, held = federation.subset_sizes(size), federation.sizes(np.arange(N))
    if (taken == held).all():
        raise InputError(f"size = {size} uses every sample of every worker; use fewer, or measure exactly.")
    return float(taken.sum() / held.sum())


def _subsets(federation: Rows) -> HasSubsets:
    """The federation, if it can take subsets of its samples; otherwise an error is raised."""
    if not isinstance(federation, HasSubsets):
        raise InputError(
            "Only a federation with data can be sampled, and this one has none; measure it exactly, with divergence."
        )
    return federation


def _repeat(meter: Meter, once: Callable[[int], tuple[float, ...]], tolerance: float, most: int) -> Repeated:
    """Repeat until the first quantity's interval is narrow enough, or the budget is used up.

    The interval is checked only when the repetitions so far predict that it is narrow enough, and their number at most
    doubles from one check to the next. A check after each repetition would stop as soon as it is narrow by chance.
    """
    positive("tolerance", tolerance)
    count("most", most, least=2)
    before = meter.cost["gradient passes"]
    values: list[tuple[float, ...]] = []
    notes: tuple[str, ...] = ()
    wanted = min(_LEAST, most)
    try:
        while len(values) < wanted:
            values.append(once(len(values)))
            if len(values) == wanted:
                mean = intervals.of_mean([value[0] for value in values])
                reach, allowed = mean.high - mean.value, tolerance * abs(mean.value)
                if reach > allowed:
                    needed = wanted * (reach / allowed) ** 2 if allowed else math.inf
                    wanted = min(math.ceil(min(needed, 2 * wanted)), most)
        if reach > allowed:
            notes = (f"After {most} repetitions the interval is still wider than the tolerance.",)
    except OutOfBudgetError as error:
        if len(values) < 2:
            raise
        notes = (f"{error} There were {len(values)} repetitions.",)
    return Repeated(np.array(values), {"gradient passes": meter.cost["gradient passes"] - before}, notes)


def _gradients(
    passes: Passes, workers: npt.NDArray[np.int64], size: int | float, repetition: int, half: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The workers' gradients over a subset of their samples, in float64, as a function of their models."""
    streams = Streams(passes.seed, Purpose.SUBSET)
    subset = _subsets(passes.federation).subset(size, streams, round=repetition, copy=half, workers=workers)
    everyone = np.arange(len(workers))
    return lambda models: subset.gradients(models, everyone).double()


def _halves(
    passes: Passes, lane: Lane, model: torch.Tensor, size: int | float, repetition: int
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Weighted sums over a lane's workers of <g_iA, g_iB>, g_iA and g_iB.

    sum_i w_i <g_iA - g_A, g_iB - g_B> is sum_i w_i <g_iA, g_iB> - <g_A, g_B>, so that no rows need to be kept.
    """
    product, sums = 0.0, [torch.zeros_like(model, dtype=torch.float64) for _ in range(2)]
    for (workers, _, weights), _ in lane.chunks(passes.chunk):
        shares, models = torch.from_numpy(weights).to(model.device), model.expand(len(workers), -1)
        first, second = (_gradients(passes, workers, size, repetition, half)(models) for half in range(2))
        product += float(shares @ (first * second).sum(dim=1))
        sums[0] += shares @ first
        sums[1] += shares @ second
    return product, sums[0], sums[1]


def _models(passes: Passes, part: Lane, model: torch.Tensor, steps: LocalSteps | None) -> torch.Tensor:
    """The local models of a lane's workers: from their local steps, or from the lane's memory."""
    return part.memory["rows"] if steps is None else steps.models(passes, part, model)


def _spread(passes: Passes, lane: Lane, model: torch.Tensor, steps: LocalSteps | None) -> Spread:
    """The mean of a lane's local models, and their spread around it."""
    spread = Spread()
    for part in lane.chunks(passes.chunk):
        models = _models(passes, part, model, steps).double()
        spread.add_rows(models, torch.from_numpy(part.cohort.weights).to(model.device))
    return spread


def _deviations(
    passes: Passes,
    lane: Lane,
    model: torch.Tensor,
    mean: torch.Tensor,
    steps: LocalSteps | None,
    size: int | float,
    repetition: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sums of grad F_i(x_i) - grad F_i(mean) over a lane's workers, on two independent subsets.

    Both models use the same subset, so that most of its noise cancels in the difference.
    """
    sums = [torch.zeros_like(model, dtype=torch.float64) for _ in range(2)]
    for part in lane.chunks(passes.chunk):
        workers, _, weights = part.cohort
        models, centre = _models(passes, part, model, steps), mean.expand(len(workers), -1)
        for half, total in enumerate(sums):
            gradients = _gradients(passes, workers, size, repetition, half)
            total += torch.from_numpy(weights).to(model.device) @ (gradients(models) - gradients(centre))
    return sums[0], sums[1]
