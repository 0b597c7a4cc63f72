"""What is recorded if the user does not say: as much as takes at most a quarter of a run's work.

An exact record takes one gradient of every example, and two more of every participant's if the round is watched. On
large data that is a hundred times the work of a round. Then records are rarer, or are made from a fixed sample of
every worker's examples, which their ``sample`` says. All of this follows from counts, never from a clock, so that a run
has the same records on every machine and when it is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgauge.base.terminal import notify
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation, HasEffort
from fedgauge.simulation.options import HasParts, Recording

CHEAP = 10**9
"""Products of two numbers in forward passes, up to which a record is exact in every round: a tenth of a second."""
SHARE = 0.25
"""The largest part of a run's work that records take by default."""
RECORDS = 25
"""The number of records that a run has at least, if it has as many rounds: rather than fewer, they are of a sample."""
VECTOR = (80.0, 7.0)
"""The work of one gradient beside its samples, in gradients of samples: per parameter for one product of a sample, and
whatever the model. Vectors are converted, compared and added up in float64; the numbers are rounded from timings."""
_LEAST = 2
"""The smallest number of a worker's examples from which a standard error can be made."""


class RecordPlan(NamedTuple):
    """What is recorded.

    Attributes:
        every: every how many rounds.
        sample: how many examples of each worker; None for all, which is exact.
        tests: how many test examples; None for all.
        long: whether a record takes long enough for a user to ask how far it is.
    """

    every: int
    sample: int | None = None
    tests: int | None = None
    long: bool = False


class Counts(NamedTuple):
    """What the choice depends on, in gradients of single examples.

    Attributes:
        examples: the number of all workers' examples.
        workers: the number of workers.
        round: the mini-batches of one round.
        passes: how many passes over the data one record takes.
        tests: the number of test examples; their forward pass counts as a third.
        effort: products of two numbers in the forward pass of one example.
        vector: the work of one worker's gradient beside its examples.
    """

    examples: int
    workers: int
    round: float
    passes: float
    tests: int
    effort: int
    vector: float = 0.0

    @property
    def exact(self) -> float:
        """The work of an exact record."""
        return (self.examples + self.workers * self.vector) * self.passes + self.tests / 3

    def sampled(self, each: int, tests: int) -> float:
        """The work of a record from a sample; its standard error takes one more forward pass."""
        return self.workers * ((each + self.vector) * self.passes + each / 3) + tests / 3


def choose(counts: Counts, rounds: int) -> RecordPlan:
    """The records of a run: exact in every round if that is cheap, else rarer, else of a sample.

    >>> choose(Counts(examples=1438, workers=10, round=2000, passes=3, tests=359, effort=7510), rounds=100)
    RecordPlan(every=1, sample=None, tests=None, long=False)
    >>> choose(Counts(examples=50_000, workers=10, round=2000, passes=3, tests=10_000, effort=10**7), rounds=100)
    RecordPlan(every=4, sample=60, tests=2000, long=False)
    >>> choose(Counts(examples=50_000, workers=10, round=2000, passes=3, tests=10_000, effort=10**7), rounds=10_000)
    RecordPlan(every=230, sample=None, tests=None, long=False)
    """
    # With this share of records, a record stands for rounds with this many times its work.
    times = (1 - SHARE) / SHARE
    if counts.exact * counts.effort <= CHEAP:
        return RecordPlan(1)
    needed = math.ceil(times * counts.exact / counts.round)
    most = max(rounds // RECORDS, 1)
    if needed <= most:
        return RecordPlan(needed)
    budget = most * counts.round / times
    tests = min(counts.tests, int(3 * budget / 4))
    left = (budget - tests / 3) / counts.workers - counts.vector * counts.passes
    each, least = int(left / (counts.passes + 1 / 3)), max(_LEAST, math.ceil(counts.vector))
    if each < least:
        # Many workers, or vectors that take longer than a few examples: fewer records rather than poor ones.
        each = least
        most = math.ceil(times * counts.sampled(each, tests) / counts.round)
    if each * counts.workers >= counts.examples:
        return RecordPlan(needed)
    return RecordPlan(most, each, tests if tests < counts.tests else None)


def plan_records(
    recording: Recording,
    federation: Federation,
    local_steps: int | Sequence[int] | None,
    participation: Participation,
    rounds: int,
) -> RecordPlan:
    """What a run records: what the user says, or what :func:`choose` says; a sentence tells what it costs.

    Args:
        recording: what the user says.
        federation: the workers.
        local_steps: one number or one per worker; None if they adapt to records, which are then exact in every round.
        participation: who takes part.
        rounds: the number of rounds.
    """
    if recording.sample is not None:
        return RecordPlan(recording.every or 1, recording.sample)
    # What commands record for their own purposes, unseen, is not counted.
    unseen = recording.every is not None and recording.on_progress is None
    if unseen or local_steps is None or not isinstance(federation, HasEffort):
        return RecordPlan(recording.every or 1)
    counts = _counts(recording, federation, local_steps, participation)
    records = RecordPlan(recording.every) if recording.every else choose(counts, rounds)
    _tell(records, counts, asked=recording.every is not None)
    return records._replace(long=records.sample is None and counts.exact * counts.effort > CHEAP)


def _counts(
    recording: Recording, federation: HasEffort, local_steps: int | Sequence[int], participation: Participation
) -> Counts:
    N = federation.num_workers
    M, sizes = participation.num_participants(N), federation.sizes(np.arange(N))
    tests = recording.evaluator.num_examples if isinstance(recording.evaluator, HasParts) else 0
    passes = 1 + 2 * min(M / N, 1.0) * recording.watch
    work = M * float(np.mean(local_steps)) * federation.batch_size
    effort = federation.effort()
    vector = VECTOR[0] * federation.dim / effort + VECTOR[1]
    return Counts(int(sizes.sum()), N, work, passes, tests, effort, vector)


def _tell(records: RecordPlan, counts: Counts, asked: bool) -> None:
    """Say what a record costs, if it is not cheap."""
    if counts.exact * counts.effort <= CHEAP or (records.every == 1 and records.sample is None and not asked):
        return
    ratio = counts.exact / counts.round
    cost = f"an exact record takes the work of {ratio:,.0f} rounds" if ratio >= 2 else "an exact record takes long"
    if asked:
        if counts.exact > records.every * counts.round:
            notify(
                f"Recording dominates this run: {cost}, and there is one every {records.every}; for less, leave"
                " record_every out."
            )
        return
    how = f"every {records.every} rounds" if records.every > 1 else "in every round"
    if records.sample is not None:
        how += f", over a fixed sample of {records.sample} examples per worker, with standard errors"
    notify(
        f"Records are made {how}, so that they take at most a quarter of the work ({cost}); for exact ones, give"
        " record_every=1 or another number of rounds."
    )
