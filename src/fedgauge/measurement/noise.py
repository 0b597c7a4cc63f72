"""How noisy a stochastic gradient is: sigma for the batch size in use, and its largest entry G.

Mini-batches are drawn with replacement, so that the variance of worker i's stochastic gradient is V_i / B, where V_i is
the variance of one sample's gradient over its shard and B is the batch size. V_i is computed from all samples, or from
pairs of independent samples. Half the squared distance of two independent gradients is an unbiased estimate of their
variance, and the pairs are independent of each other, so that their mean has an interval (docs/theory/estimates.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedgauge.base.errors import InputError, count
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Floats
from fedgauge.federation.identity import check_model
from fedgauge.federation.protocols import HasKnownNoise, HasModule, HasSampleNoise, HasSamples, Rows, StochasticRows
from fedgauge.measurement import intervals
from fedgauge.measurement.intervals import Interval
from fedgauge.measurement.passes import Meter, OutOfBudgetError, Passes
from fedgauge.measurement.values import Reading
from fedgauge.simulation.workers import Lane
from fedgauge.values import Estimate, Kind

MEANING = "How far a stochastic gradient is from its mean at this model, for the batch size in use."

_PAIRS = 8
"""The number of pairs in one request to the workers; the budget is checked between requests."""
_BATCHES, _SINGLES = 1, 2
"""The copy numbers in the addresses of random draws, for mini-batches and for single samples."""


@undisturbed
def noise(meter: Meter, model: torch.Tensor, *, samples: int | None = None, draws: int = 16) -> Reading:
    """Measure sigma, the largest over workers, sigma_rms, their root mean square, and G at a model.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat model.
        samples: the number of single samples to draw from each worker for sigma; by default, all samples are used,
            which is exact.
        draws: the number of stochastic gradients to draw from each worker, with the batch size in use. G is their
            largest entry, and their variance is a check on sigma. If a federation has neither samples nor a known
            sigma, their variance gives sigma.

    Returns:
        The reading; ``details`` has every worker's variance, what it would be if batches were drawn without
        replacement, where G was attained, and the variance of the draws.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, sigma2=0.25)
    >>> with Meter(federation) as meter:
    ...     reading = noise(meter, federation.start(0))
    >>> reading.constants["sigma"].value, reading.constants["sigma"].kind
    (0.5, 'exact')
    """
    model = check_model(meter.federation, model)
    federation = meter.federation
    N = federation.num_workers
    count("draws", draws, least=4)
    if samples is not None and not isinstance(federation, HasSampleNoise):
        raise InputError("samples needs a federation with data, which this one does not have; set draws instead.")
    if samples is not None:
        count("samples", samples, least=4)
        if isinstance(federation, HasSampleNoise) and not federation.averages_samples:
            raise InputError(
                "samples needs stochastic gradients that are means of single samples' gradients, which these are not;"
                " set draws instead."
            )
    drawn = _draw(meter, model, draws // 2, None)
    notes = list(drawn.notes)
    cost = drawn.cost
    method = f"{2 * drawn.number} stochastic gradients per worker, in pairs"
    kind: Kind = "sample"
    replaced: dict[str, Any] = {}
    if isinstance(federation, HasSampleNoise) and (samples is not None or federation.averages_samples):
        variances, kind, cost = _of_data(meter, federation, model, samples)
        replaced = _without_replacement(federation, variances.each)
        method = (
            f"variance of {2 * variances.number} samples per worker, in pairs" if samples else "variance of all samples"
        )
        notes += variances.notes
    elif isinstance(federation, HasKnownNoise):
        variances, kind, method = Variances.exact(np.full(N, federation.sigma2)), "exact", "as given"
    else:
        variances = drawn
    estimates = [
        _estimate("sigma", variances.largest(), kind, f"{method}; largest", cost),
        _estimate("sigma_rms", variances.mean(meter.shares), kind, f"{method}; root mean square over workers", cost),
        Estimate("G", drawn.entry, drawn.entry, drawn.entry, "lower", "largest entry of the draws", drawn.cost),
    ]
    details = {
        "variance of each worker": variances.each.tolist(),
        "worker": int(variances.each.argmax()),
        "batch size": federation.batch_size if isinstance(federation, HasSamples) else None,
        "G": _where(meter.federation, drawn),
        "drawn": drawn.summary(meter.shares),
        **replaced,
    }
    if kind == "sample" and N > 1:
        notes.append(
            "The largest of several estimates tends to be too large; the interval of sigma allows for that, and"
            " sigma_rms has no such error."
        )
    return Reading("noise", MEANING, tuple(estimates), details, tuple(notes))


@dataclass
class Variances:
    """The variance of each worker's stochastic gradient, and what is known about its error.

    Attributes:
        each: one variance per worker, each the mean of several terms.
        spread: the sample variance of those terms, one per worker.
        number: the number of terms; 0 if the variances are exact.
        totals: the weighted mean over workers of each term.
        entry: the largest absolute entry of a gradient that was drawn.
        place: the worker of that entry, and its position in the flat model.
        notes: remarks for the reader.
        cost: the passes over the data that were needed.
    """

    each: Floats
    spread: Floats
    number: int
    totals: list[float] = field(default_factory=list)
    entry: float = 0.0
    place: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    cost: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def exact(cls, each: Floats) -> Variances:
        """Variances without error."""
        return cls(each, np.zeros_like(each), 0)

    def largest(self) -> Interval:
        """The largest variance, with an interval from the largest lower end to the largest upper end."""
        if not self.number:
            return Interval(*[float(self.each.max())] * 3)
        each = intervals.from_moments(self.each, self.spread, self.number, of=len(self.each))
        return Interval(*(float(part.max()) for part in each))

    def mean(self, shares: Floats) -> Interval:
        """The weighted mean over workers; its terms are independent, so that it has its own interval."""
        if not self.number:
            return Interval(*[float(shares @ self.each)] * 3)
        return intervals.of_mean(self.totals)

    def scaled(self, by: float) -> Variances:
        """The variances of a gradient whose variance is ``by`` times as large."""
        totals = [total * by for total in self.totals]
        return Variances(self.each * by, self.spread * by**2, self.number, totals, notes=self.notes)

    def summary(self, shares: Floats) -> dict[str, Any]:
        """The entries for the reading's details."""
        return {
            "gradients a worker": 2 * self.number,
            "sigma2": self.largest()._asdict(),
            "sigma_rms2": self.mean(shares)._asdict(),
        }


def _of_data(
    meter: Meter, federation: HasSampleNoise, model: torch.Tensor, samples: int | None
) -> tuple[Variances, Kind, Mapping[str, float]]:
    """sigma_i^2 of a mini-batch, from all single samples or from ``samples`` of each worker."""
    if samples is not None:
        draws = _draw(meter, model, samples // 2, 1)
        return draws.scaled(1 / federation.batch_size), "sample", draws.cost
    meter.check_budget(2, "the noise of all samples")
    before = meter.cost["gradient passes"]
    each = np.empty(meter.federation.num_workers)
    # One pass for the gradients, and one for the squared norms of single samples' gradients.
    for workers, variances in meter.ask("gradient passes", 2, _whole, model):
        each[workers] = variances
    cost = {"gradient passes": meter.cost["gradient passes"] - before}
    return Variances.exact(each / federation.batch_size), "lower", cost


def _whole(passes: Passes, lane: Lane, model: torch.Tensor) -> tuple[list[int], list[float]]:
    """The variance of one sample's gradient for each worker of a lane, over its whole shard."""
    variances: list[float] = []
    for (workers, _, _), _ in lane.chunks(passes.chunk):
        variances += _samples(passes.federation).sample_variances(model, workers).tolist()
    return lane.cohort.workers.tolist(), variances


def _samples(federation: Rows) -> HasSampleNoise:
    """The federation, if it can compute gradients of single samples; otherwise an error is raised."""
    if not isinstance(federation, HasSampleNoise):
        raise InputError(
            "Gradients of single samples need a federation with data, which this one does not have; set draws instead."
        )
    return federation


def _draw(meter: Meter, model: torch.Tensor, pairs: int, batch_size: int | None) -> Variances:
    """The variance of each worker's stochastic gradient from ``pairs`` pairs, or fewer if the budget ends."""
    N, before = meter.federation.num_workers, meter.cost["gradient passes"]
    each = 2 * meter.sample_passes
    if batch_size is not None:
        each *= batch_size / _samples(meter.federation).batch_size
    meter.check_budget(2 * each, "two pairs of gradients, the least that has an interval")
    sums, squares = np.zeros(N), np.zeros(N)
    totals: list[float] = []
    notes: tuple[str, ...] = ()
    entry, place = -1.0, (0, 0)
    try:
        while len(totals) < pairs:
            # Two pairs first, so that a small budget still gives an interval.
            first, number = len(totals), min(_PAIRS if totals else 2, pairs - len(totals))
            parts = meter.ask("gradient passes", each * number, _pairs, model, first, number, batch_size)
            for workers, terms, _, _ in parts:
                sums[workers] += terms.sum(axis=1)
                squares[workers] += np.square(terms).sum(axis=1)
            totals += np.sum([total for _, _, total, _ in parts], axis=0).tolist()
            for _, _, _, (value, *where) in parts:
                if value > entry:
                    entry, place = value, (where[0], where[1])
    except OutOfBudgetError as error:
        if len(totals) < 2:
            raise
        notes = (f"{error} {2 * len(totals)} of {2 * pairs} gradients per worker were drawn.",)
    number = len(totals)
    spread = np.maximum(squares - sums**2 / number, 0.0) / (number - 1)
    cost = {"gradient passes": meter.cost["gradient passes"] - before}
    return Variances(sums / number, spread, number, totals, entry, place, notes, cost)


def _pairs(
    passes: Passes, lane: Lane, model: torch.Tensor, first: int, number: int, batch_size: int | None
) -> tuple[list[int], Floats, Floats, tuple[float, int, int]]:
    """Half the squared distance of two independent stochastic gradients, for each worker (rows) and pair (columns).

    Also returns the weighted sums over the workers, and the largest entry, with its worker and position.
    """
    federation: StochasticRows = passes.federation
    if batch_size is not None:
        federation = _samples(passes.federation).with_batch_size(batch_size)
    streams = Streams(passes.seed, Purpose.MEASURE)
    terms, entry = [], (-1.0, 0, 0)
    totals = np.zeros(number)
    for (workers, _, weights), _ in lane.chunks(passes.chunk):
        models = model.expand(len(workers), -1)
        copies = np.full(len(workers), _BATCHES if batch_size is None else _SINGLES)
        products = np.empty((len(workers), number))
        for pair in range(number):
            drawn = federation.draws(streams, first + pair, workers, copies, 2)
            both = [federation.stochastic_gradients(models, workers, draw) for draw in drawn]
            products[:, pair] = ((both[0].double() - both[1].double()).square().sum(dim=1) / 2).cpu().numpy()
            for gradients in both:
                largest, places = gradients.abs().max(dim=1)
                row = int(largest.argmax())
                if float(largest[row]) > entry[0]:
                    entry = (float(largest[row]), int(workers[row]), int(places[row]))
        terms.append(products)
        totals += weights @ products
    return lane.cohort.workers.tolist(), np.concatenate(terms), totals, entry


def _estimate(symbol: str, squared: Interval, kind: Kind, method: str, cost: Mapping[str, float]) -> Estimate:
    value, low, high = map(float, squared.root())
    return Estimate(symbol, value, low, high, kind, method, cost)


def _where(federation: Rows, drawn: Variances) -> dict[str, Any]:
    """The worker and the parameter with the largest entry of a gradient."""
    worker, place = drawn.place
    place_of: dict[str, Any] = {"worker": worker, "entry": place, "of draws": 2 * drawn.number}
    if isinstance(federation, HasModule):
        numbers = federation.unflatten(torch.arange(federation.dim))
        place_of["parameter"] = next(name for name, part in numbers.items() if bool((part == place).any()))
    return place_of


def _without_replacement(federation: HasSamples, variances: Floats) -> dict[str, Any]:
    """The variances for mini-batches of distinct samples; a batch of the whole shard has no noise."""
    sizes, B = federation.sizes(np.arange(len(variances))), federation.batch_size
    factors = np.maximum(sizes - B, 0) / np.maximum(sizes - 1, 1)
    each = variances * factors
    return {"without replacement": {"largest": float(each.max()), "of each worker": each.tolist()}}
