"""One round of a run: the workers' part, the server's update, and what a watched round says about the constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from fedgauge.algorithms.base import Tensors
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import HasSamples
from fedgauge.simulation.engines.local import Engine, Method, map_lanes
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.workers import Drawn, Lane, Remembering, Secants, Sums, Work, is_large, lanes, total


class Watched(NamedTuple):
    """What watching a round adds to its record, under the names in :class:`Round`."""

    spread: float | None = None
    deviation2: float | None = None
    zeta2: float | None = None
    L_tilde_ratio: float | None = None
    L_g_ratio: float | None = None


def compare(model: torch.Tensor, gradient: torch.Tensor | None, sums: Sums, secants: Secants) -> Watched:
    """Compute what a round says about the constants.

    Args:
        model: the global model at the start of the round.
        gradient: the gradient of f at that model; None unless all workers take part.
        sums: the participants' models after their local steps, and their gradients at those models.
        secants: their gradients at the mean of those models.
    """
    assert sums.spread.mean is not None
    assert sums.gradient is not None
    mean, weight = sums.spread.mean, sums.spread.weight
    at_mean = secants.gradient / weight
    gap = (sums.gradient / weight).sub_(at_mean)
    ratio = None
    if gradient is not None and not torch.equal(mean.to(model.dtype), model):
        ratio = float((at_mean - gradient).norm() / (mean - model).norm())
    return Watched(
        spread=sums.spread.squares / weight,
        deviation2=float(gap @ gap),
        # Rounding can make the difference of two equal numbers negative.
        zeta2=max(secants.squares / weight - float(at_mean @ at_mean), 0.0),
        L_tilde_ratio=secants.steepest or None,
        L_g_ratio=ratio,
    )


@runtime_checkable
class Foresees(Protocol):
    """An engine that makes use of knowing what comes next."""

    def foresee(self, state: State) -> None:
        """Take note of the state that the next round will begin with."""


_KEEPING_LANES = 4
"""How many lanes' models and gradients of a large model are kept until the mean model is known."""


def _clone(memory: Tensors) -> Tensors:
    """A copy, so that an interrupted round leaves its state unchanged."""
    return {name: rows.clone() for name, rows in memory.items()}


def _take_over(sums: Sums, memory: Tensors) -> None:
    """Move what workers remember to their rows."""
    while sums.memory:
        workers, remembered = sums.memory.pop(0)
        for name, rows in remembered.items():
            memory[name][workers] = rows


class Rounds:
    """The parts of a run that do not change from round to round."""

    on_progress: Callable[[int, int], None] | None = None
    """Called while a record is made, with how many of its parts are done and of how many."""

    def __init__(
        self, work: Work, engine: Engine, participation: Participation, seed: int, start: torch.Tensor | None = None
    ) -> None:
        self._work, self._engine, self._participation = work, engine, participation
        self._start = work.federation.start(seed) if start is None else start
        self.seed, self._chunk = seed, work.chunk
        self._num_workers = work.federation.num_workers
        # The objective includes every worker, even if only some take part in a round.
        self._everyone = Participation(weights=participation.weights).cohort(self._num_workers, seed, 0)

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The objective f and its gradient at the global model."""
        return total(self._record(Work.evaluate, self._all_lanes, model))

    def loss(self, model: torch.Tensor) -> float:
        """The objective f at the global model."""
        return float(sum(self._record(Work.loss, self._all_lanes, model)))

    def estimate(self, model: torch.Tensor) -> tuple[float, torch.Tensor, float]:
        """f, its gradient and the standard error of f, from a sample of every worker's examples."""
        loss, gradient = self.evaluate(model)
        groups = np.sum(list(self._record(Work.group_losses, self._all_lanes, model)), axis=0)
        return loss, gradient, float(groups.std(ddof=1) / len(groups) ** 0.5)

    @property
    def sampled(self) -> int:
        """The number of examples that records are made from, if not from all."""
        recorded, N = self._work.recorded, self._num_workers
        return int(recorded.sizes(np.arange(N)).sum()) if isinstance(recorded, HasSamples) else 0

    @property
    def _all_lanes(self) -> list[Lane]:
        return lanes(self._everyone, self._chunk)

    def _record(self, method: Method, dealt: list[Lane], *arguments: Any) -> Iterator[Any]:
        """Compute a part of a record, which may take long."""
        few, on_progress = is_large(self._start), self.on_progress
        return map_lanes(self._engine, method, dealt, *arguments, few=few, on_progress=on_progress)

    def round(
        self,
        state: State,
        gradient: torch.Tensor | None = None,
        ends: Sequence[int] | None = None,
        drawn: Sequence[Drawn] = (),
    ) -> tuple[list[State], Watched]:
        """Run one round and return the next state, and what was measured within the round if it is watched.

        Args:
            state: the state before the round.
            gradient: the gradient of f at the global model; the round is watched if it is passed.
            ends: growing numbers of local steps. There is then one next state for each: the state that would follow if
                every participant stopped after that many steps.
            drawn: the local steps of another run whose mini-batches are taken, together with what models and
                augmentations draw; who takes part is drawn for this round in any case.
        """
        N = self._num_workers
        full = self._participation.sampling == "full"
        cohort = self._everyone if full else self._participation.cohort(N, self.seed, state.round)
        dealt = lanes(cohort, self._chunk)
        watch = 0 if gradient is None else self._work.keepable(state.model, len(dealt))
        # What workers remember is as large as their models with a local optimiser, so it is taken over as it comes.
        sums, memory = Sums(), _clone(state.memory)
        local_models: list[Lane] = []
        arguments = (state.round, state.model, state.server, watch, ends, *((drawn,) if drawn else ()))
        large = is_large(self._start) or is_large(*state.memory.values())
        remembering = Remembering(dealt, state.memory)
        parts = map_lanes(self._engine, Work.local_phase, remembering, *arguments, few=large)
        for lane, part in zip(dealt, parts, strict=True):
            if is_large(self._start) and len(local_models) >= _KEEPING_LANES:
                # The ratio that bounds L_tilde is then the largest over fewer workers.
                part.kept = {name: rows[:0].clone() for name, rows in part.kept.items()}
            local_models.append(Lane(lane.cohort, part.kept))
            _take_over(part, memory)
            sums.add(part)
            del part
        following = [*(self._following(state, each) for each in sums.path), self._following(state, sums, memory)]
        if gradient is None or sums.spread.mean is None or sums.gradient is None:
            return following, Watched()
        sums.message.clear()
        if isinstance(self._engine, Foresees):
            self._engine.foresee(following[-1])
        return following, self._observe(state.model, gradient if full else None, sums, local_models)

    def _following(self, state: State, sums: Sums, memory: Tensors | None = None) -> State:
        """The state after the server's update, with the memory that the workers have by then, if it was kept up."""
        N = self._num_workers
        memory = _clone(state.memory) if memory is None else memory
        _take_over(sums, memory)
        fraction = self._participation.num_participants(N) / N
        model, server = self._work.algorithm.update(state.model, state.server, sums.message, fraction)
        return State(state.round + 1, model, server, memory)

    def _observe(
        self, model: torch.Tensor, gradient: torch.Tensor | None, sums: Sums, local_models: list[Lane]
    ) -> Watched:
        """Compare the participants' models and gradients with those at their mean model."""
        mean = sums.spread.mean
        assert mean is not None
        secants: Secants | None = None
        for part in self._record(Work.secants, local_models, mean.to(model.dtype)):
            if part is None:
                # A worker was lost in this round, so these sums are over fewer workers than the earlier ones.
                return Watched()
            if secants is None:
                secants = part
            else:
                secants.add(part)
        return Watched() if secants is None else compare(model, gradient, sums, secants)

    @property
    def device(self) -> torch.device:
        """Where models are."""
        return self._start.device

    def first_state(self) -> State:
        """The state before the first round."""
        model = self._start
        remembered = self._work.algorithm.worker_init(model)
        memory = {name: vector.expand(self._num_workers, -1).clone() for name, vector in remembered.items()}
        return State(0, model, self._work.algorithm.init(model), memory)
