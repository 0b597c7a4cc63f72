"""The probe: spread, alignment and the constants in a user's own job, at the point where models are averaged."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from fedgauge.base.errors import InputError, positive
from fedgauge.base.threads import undisturbed
from fedgauge.measurement.live.comparing import Sent, Worker, compare_workers
from fedgauge.measurement.live.job import JobRun
from fedgauge.measurement.live.passes import BatchLoss, bare, buffers_of, parameters_of, slope
from fedgauge.measurement.live.probe_result import ProbedRound, ProbeResult
from fedgauge.measurement.live.reducing import Reduce, checked, largest, usual_reduce

Models = nn.Module | Sequence[nn.Module]


@dataclass
class _Times:
    """When the probe began to watch and in which round, and the seconds that it has spent, lastly before averaging."""

    began: float | None = None
    first: int = 0
    spent: float = 0.0
    before: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the probe began to watch."""
        return 0.0 if self.began is None else time.perf_counter() - self.began


class Probe:
    """Measures why local steps are lost, in a user's own training loop, at the point where models are averaged.

    Call :meth:`before` when the local steps of a round are done, and :meth:`after` when the model has been averaged::

        probe = fg.Probe(loss, batches)            # on every rank
        for round in range(rounds):
            ...                                    # the local steps of this rank
            probe.before(model)
            average(model)
            probe.after(model)

    Of a round that it measures, it reports what :func:`fedgauge.simulate` records: the spread of the local models, the
    gradients' deviation, zeta, and the ratios that L_h, L_tilde and L_g are not below, with the fixed batches in place
    of all data; and the alignment of the workers' changes, and sigma. All of it by named parameter too. The round
    before the first :meth:`after` is only measured if ``start`` is given, as the probe has to know where the local
    steps began.

    The training is the same to the bit with a probe and without: gradients, modes, buffers and random generators are
    left as they are. Losses are computed in eval mode, and with each worker's own buffers from before the averaging, so
    that the gradients differ by the parameters alone. Gradients are averaged, and all sums are made, in float64.

    A measured round takes three passes over the batches, for the gradients at the local model, at the average and at
    the model before the round; it sums three vectors over the ranks, or four where the average is not the mean of the
    local models (after an outer optimiser's step), and a few short tables. The probe measures every k-th round, so that
    it takes at most ``share`` of the time; k follows from the slowest rank, and is the same on all.

    A process that trains several workers passes lists: ``batches`` with one list for each worker, ``before([a, b])``,
    and ``after`` with the averaged model. Each rank, and each model in a list, is one worker.

    Args:
        loss: returns the mean loss of a model on a batch, as ``loss(model, batch)``.
        batches: a few fixed batches of this rank, of equal size; sigma needs at least two.
        share: the share of the time that the probe may take; 1 measures every round.
        weight: the weight of this rank's model in the average, such as its number of examples; a list for several
            workers.
        start: the model before the first round.
        reduce: returns the sum of a tensor over all ranks. By default that of torch.distributed if it is initialised; a
            single process is otherwise all there is.
        out: a directory for a run: ``fedgauge runs show``, ``report`` and ``compare`` take it as any other. Only rank 0
            of torch.distributed writes; with a function of your own, name it on one rank.
        about: what the run's settings are to say: ``federation``, ``algorithm`` (an object with a ``name``),
            ``local_steps``, ``rounds`` and ``seed``.

    >>> model = nn.Linear(2, 1)
    >>> workers = [nn.Linear(2, 1) for _ in range(2)]
    >>> loss = lambda model, batch: model(batch).square().mean()
    >>> probe = Probe(loss, [[torch.randn(4, 2)], [torch.randn(4, 2)]], share=1.0, start=model)
    >>> probe.before(workers)
    >>> with torch.no_grad():
    ...     for mean, *parts in zip(model.parameters(), *(worker.parameters() for worker in workers)):
    ...         _ = mean.copy_(sum(parts) / 2)
    >>> probe.after(model)
    >>> [each.round for each in probe.records], probe.records[0].num_workers
    ([0], 2)
    """

    def __init__(
        self,
        loss: BatchLoss,
        batches: Sequence[Any],
        *,
        share: float = 0.05,
        weight: float | Sequence[float] = 1.0,
        start: nn.Module | None = None,
        reduce: Reduce | None = None,
        out: str | Path | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(loss):
            raise InputError(f"loss must be a function loss(model, batch), not {loss!r:.60}.")
        if not isinstance(batches, Sequence) or isinstance(batches, str) or not len(batches):
            raise InputError("batches must be a list of at least one batch; take a few from your loader and keep them.")
        if positive("share", share) > 1:
            raise InputError(f"share must be at most 1, which is every round, not {share!r}.")
        self._loss, self._batches, self._share, self._weight = loss, batches, float(share), weight
        self._reduce = checked(usual_reduce if reduce is None else reduce)
        self._start = None if start is None else parameters_of(bare(start))
        self._times = _Times(None if start is None else time.perf_counter())
        self._round, self._next, self._every = 0, 0, 1
        self._workers: list[Worker] | None = None
        self._rounds: list[ProbedRound] = []
        self._left_out = self._stepped = 0
        self._model: nn.Module | None = None
        self._run = JobRun.open(out, about or {}, "probe")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._run:
            self._run.close()

    # -- around the averaging -------------------------------------------------------------------------------------

    @undisturbed
    def before(self, model: Models) -> None:
        """Take note of the local model, whose local steps are done and which is not averaged yet.

        Args:
            model: the local model; a list of models where this process trains several workers.
        """
        if self._workers is not None:
            raise InputError("before(model) was called twice in a round; call after(model) once the model is averaged.")
        began = time.perf_counter()
        modules = [bare(each) for each in (model if isinstance(model, list | tuple) else [model])]
        if not modules:
            raise InputError("before(models) needs at least one model.")
        if self._start is None or self._round != self._next:
            self._workers = []
            return
        several = isinstance(model, list | tuple)
        batches, weights = (self._batches if several else [self._batches]), self._weights(len(modules))
        if len(batches) != len(modules):
            raise InputError(
                f"batches must have one list of batches for each of the {len(modules)} models that before() was given,"
                f" not {len(batches)}."
            )
        workers = []
        for module, own, weight in zip(modules, batches, weights, strict=True):
            if not isinstance(own, Sequence) or isinstance(own, str) or not len(own):
                raise InputError("batches must hold a list of at least one batch for each model.")
            at, buffers = parameters_of(module), buffers_of(module)
            if at.keys() != self._start.keys():
                raise InputError("The local model trains other parameters than the model before the round.")
            workers.append(Worker(module, own, weight, at, buffers, slope(module, self._loss, own, at, buffers)))
        self._workers = workers
        self._times.before = time.perf_counter() - began
        self._times.spent += self._times.before

    @undisturbed
    def after(self, model: Models) -> None:
        """Measure the round, if it is one that is measured, now that the model has been averaged.

        Args:
            model: the averaged model; of a list of models, all of which are averaged, the first is taken.
        """
        if self._workers is None:
            raise InputError(
                "after(model) was called without before(model); call before(model) first, ahead of the averaging."
            )
        began = time.perf_counter()
        self._model = module = bare(next(iter(model)) if isinstance(model, list | tuple) and model else model)
        if self._workers and self._start is not None:
            self._measure(module, began)
        elif self._start is None:
            self._next = self._round + 1
        self._workers = None
        self._round += 1
        if self._next == self._round:
            self._start = parameters_of(module)
        if self._times.began is None:
            self._times.began, self._times.first = time.perf_counter(), self._round
        else:
            self._times.spent += time.perf_counter() - began

    def _measure(self, module: nn.Module, began: float) -> None:
        assert self._workers is not None
        assert self._start is not None
        compared = compare_workers(
            self._round, self._workers, Sent(self._start, parameters_of(module)), self._loss, self._reduce
        )
        self._stepped += compared.stepped
        wanted = torch.tensor([self._rounds_until_next(time.perf_counter() - began)], dtype=torch.float64)
        most = largest(torch.cat([compared.steepest, wanted.to(compared.steepest)]), self._reduce)
        self._every = int(most[-1])
        self._next = self._round + self._every
        found = compared.with_steepest(most[:-1])
        if found is None:
            self._left_out += 1
            return
        self._rounds.append(found)
        if self._run:
            self._run.append(found.record, self._times.elapsed)

    def _weights(self, number: int) -> list[float]:
        given = self._weight if isinstance(self._weight, Sequence) else [self._weight] * number
        if len(given) != number:
            raise InputError(f"weight must be one number, or one for each of {number} models, not {len(given)}.")
        return [positive("weight", each) for each in given]

    def _rounds_until_next(self, cost: float) -> float:
        """After how many rounds this rank could measure again without taking more than its share of the time."""
        times = self._times
        spent, next_cost = times.spent + cost, times.before + cost
        trained = max(times.elapsed - spent, 0.0)
        needed = (spent + next_cost) * (1 - self._share) / self._share
        pace = max(trained / (self._round + 1 - times.first), 1e-9)
        return float(min(max(math.ceil((needed - trained) / pace), 1), 10**6))

    # -- what was measured ----------------------------------------------------------------------------------------

    @property
    def records(self) -> tuple[ProbedRound, ...]:
        """The rounds that were measured."""
        return tuple(self._rounds)

    def summary(self) -> ProbeResult:
        """What was measured so far, and the time that it took; print it, plot it, or take its ``constants``."""
        times = self._times
        return ProbeResult(
            tuple(self._rounds),
            self._round,
            self._share,
            self._every,
            times.spent,
            max(times.elapsed, times.spent),
            self._left_out,
            self._stepped,
        )

    def close(self) -> ProbeResult:
        """End the run in ``out`` with the model as it is now, write the constants beside it, and return the summary."""
        found = self.summary()
        if self._run and self._model is not None:
            self._run.finish(self._model, self._round, found.reading, found.spent)
        return found
