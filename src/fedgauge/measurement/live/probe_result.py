"""What a probe measured in a user's own job, as values that are read without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedgauge.base.errors import InputError, nearest
from fedgauge.measurement.values import Reading
from fedgauge.values import Constants, Estimate, Kind, Result, Round, Value
from fedgauge.values.display import Displayed, counted, lasting, share_of

MEANING = "What a probe observed in a job, on a few fixed batches of each worker."


@dataclass(frozen=True)
class ProbedLayer(Value):
    """The part of one named parameter in a round.

    The parts of spread, deviation2, zeta2 and sigma2 add up to those of the whole model.

    Attributes:
        spread: mean squared distance of the local parameters from their mean.
        alignment: the squared norm of the mean change over the mean squared norm of the changes; None without a change.
        deviation2: squared distance between the mean gradient at the local models and at their mean.
        zeta2: mean squared distance of the workers' gradients at the mean model from their mean.
        sigma2: mean variance of the gradient of one batch; None with a single batch.
        L_h_ratio: the root of deviation2 over the spread of the whole model.
        L_tilde_ratio: the largest change of a worker's gradient between its own model and the mean model, divided by
            the distance of the two whole models.
    """

    spread: float
    alignment: float | None
    deviation2: float
    zeta2: float
    sigma2: float | None
    L_h_ratio: float | None
    L_tilde_ratio: float | None


@dataclass(frozen=True)
class ProbedRound(Value):
    """What a probe measured in one round, every number from the fixed batches alone.

    Attributes:
        record: the round as a run has it: the loss and gradient before the round, and spread, deviation2, zeta2 and the
            ratios after its local steps.
        num_workers: how many workers were averaged.
        alignment: the squared norm of the workers' mean change over their mean squared change: 1 where all go the same
            way, 1/M where the changes of M workers are orthogonal and equally long.
        sigma2: mean variance of the gradient of one batch; None with a single batch.
        layers: the same by named parameter.
    """

    record: Round
    num_workers: int
    alignment: float | None
    sigma2: float | None
    layers: Mapping[str, ProbedLayer] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """The number of the round, counted from 0."""
        return self.record.round

    @property
    def spread(self) -> float | None:
        """Mean squared distance of the local models from their mean."""
        return self.record.spread

    @property
    def L_h_ratio(self) -> float | None:  # noqa: N802
        """The root of deviation2 over spread, a lower bound of L_h on these batches."""
        return self.record.L_h_ratio


@dataclass(frozen=True)
class ProbeResult(Result, Displayed):
    """What a probe measured, and the time that it took.

    Attributes:
        rounds: the rounds that were measured.
        finished: how many rounds the job has finished.
        share: the share of the time that the probe may take.
        every: every how many rounds it measures now.
        spent: seconds that it took, on this rank.
        elapsed: seconds of the job that it watched, on this rank.
        left_out: how many rounds were measured and left out because a number was not finite.
        stepped: how many measured rounds ended in a model that is not the mean of the local models.
    """

    kind, written_by = "probe", "Probe"

    rounds: tuple[ProbedRound, ...]
    finished: int
    share: float
    every: int
    spent: float
    elapsed: float
    left_out: int = 0
    stepped: int = 0

    def column(self, name: str) -> list[float]:
        """One number of every measured round, with NaN for a missing one.

        The name is that of a number in a :class:`~fedgauge.Round`, or ``alignment``, ``sigma2`` or ``num_workers``.
        """
        own = ("alignment", "sigma2", "num_workers")
        if name not in own and not hasattr(Round, name) and name not in Round.__dataclass_fields__:
            raise InputError(f"A probe has no number {name!r}; {nearest(name, [*own, *Round.__dataclass_fields__])}")
        values = [getattr(each if name in own else each.record, name) for each in self.rounds]
        return [math.nan if value is None else float(value) for value in values]

    @property
    def taken(self) -> float:
        """The share of the time that the probe took."""
        return self.spent / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def pace(self) -> str:
        """How often the probe measures, and the time that it takes, in one sentence."""
        rhythm = "every round" if self.every == 1 else f"every {self.every} rounds"
        return (
            f"It measured {len(self.rounds)} of {counted(self.finished, 'round')} and took {self.taken:.1%} of"
            f" {lasting(self.elapsed)}, where {self.share:.1%} was allowed; it now measures {rhythm}."
        )

    @property
    def sentence(self) -> str:
        """The main result, in one sentence."""
        if not self.rounds:
            return f"The probe has measured none of {counted(self.finished, 'round')} yet."
        last = self.rounds[-1]
        workers = counted(last.num_workers, "worker")
        if last.alignment is None:
            return f"In round {last.round}, no model of {workers} had changed."
        if last.num_workers == 1:
            return f"In round {last.round} there was one worker, so there is nothing to compare."
        left = share_of(last.alignment)
        return (
            f"In round {last.round}, averaging left {left} of the mean squared change of {workers}. It leaves 100% if"
            f" all agree, {share_of(1 / last.num_workers)} if their changes are unrelated, and less if they oppose one"
            " another."
        )

    @property
    def constants(self) -> Constants:
        """The constants that the rounds showed: the largest ratios, and the root mean squares of zeta and sigma."""
        return Constants(tuple(self._estimates()))

    @property
    def reading(self) -> Reading:
        """The constants as a way to measure has them."""
        notes = ("They belong to the fixed batches, not to all of the workers' data.",)
        return Reading("probe", MEANING, tuple(self._estimates()), {"rounds": [r.round for r in self.rounds]}, notes)

    def _estimates(self) -> list[Estimate]:
        number = len(self.rounds)
        most: tuple[tuple[str, Callable[[Round], float | None]], ...] = (
            ("L_h", lambda record: record.L_h_ratio),
            ("L_g", lambda record: record.L_g_ratio),
            ("L_tilde", lambda record: record.L_tilde_ratio),
        )
        found = []
        for symbol, ratio in most:
            ratios = [value for each in self.rounds if (value := ratio(each.record)) is not None]
            if ratios:
                found.append(_estimate(symbol, max(ratios), max(ratios), "sample", f"largest of {number} rounds"))
        for symbol, squares in (
            ("zeta_rms", [each.record.zeta2 for each in self.rounds]),
            ("sigma_rms", [each.sigma2 for each in self.rounds]),
        ):
            known = [value for value in squares if value is not None]
            if known:
                mean = (sum(known) / len(known)) ** 0.5
                method = f"root mean square over {counted(len(known), 'round')}"
                found.append(_estimate(symbol, mean, max(known) ** 0.5, "sample", method, min(known) ** 0.5))
        return found


def _estimate(symbol: str, value: float, high: float, kind: Kind, method: str, low: float | None = None) -> Estimate:
    low = value if low is None else low
    return Estimate(symbol, value, min(low, value), max(high, value), kind, f"{method}, on the probe's batches")
