"""Runs for the gauge: rounds of any number of local steps, with f noted now and then, and resumed after a kill."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from fedgauge.base.codec import Value
from fedgauge.base.threads import one_thread
from fedgauge.federation.protocols import HasEffort, carries_statistics
from fedgauge.measurement.gauge.cause import Sight
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.simulation.engines.local import make_engine
from fedgauge.simulation.records import SHARE
from fedgauge.simulation.rounds import Rounds
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.setup import Setup
from fedgauge.simulation.workers import Drawn, Work

RECORDS = 96
"""About how often f is recorded along a run."""
_KEPT = 8
"""Records after which an unfinished run is saved."""


@dataclass(frozen=True)
class Track(Value):
    """A run of the gauge.

    Attributes:
        steps: the local steps before each record, the first being 0.
        losses: f there; infinite where it is not a number.
        rounds: the number of rounds.
        gradient_steps: the local steps of each worker.
        passes: evaluations of f.
        sights: what was observed in watched rounds.
        complete: whether the run has ended by itself.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    rounds: int = 0
    gradient_steps: int = 0
    passes: int = 0
    sights: tuple[Sight, ...] = ()
    complete: bool = False


@dataclass
class _Progress:
    """A run while it goes on."""

    state: State
    steps: list[int]
    losses: list[float]
    rounds: int = 0
    gradient_steps: int = 0
    passes: int = 0
    sights: list[Sight] = field(default_factory=list)

    def track(self, complete: bool) -> Track:
        numbers = (self.rounds, self.gradient_steps, self.passes)
        return Track(tuple(self.steps), tuple(self.losses), *numbers, tuple(self.sights), complete)


class SharedDraws:
    """Where the local steps of a run have their draws, for runs with other numbers of local steps that share them.

    Args:
        rounds: the local steps of every round; after the last, there is one local step per round.

    >>> SharedDraws([1, 4]).of(before=3, steps=4)
    [Drawn(round=1, steps=4, first=2, last=4), Drawn(round=2, steps=1, first=0, last=1), \
Drawn(round=3, steps=1, first=0, last=1)]
    """

    def __init__(self, rounds: Sequence[int]) -> None:
        self._steps = rounds
        self._ends = np.cumsum(np.asarray(rounds, dtype=np.int64))

    def of(self, before: int, steps: int) -> list[Drawn]:
        """The draws of so many local steps that follow on those before."""
        found, place, end = list[Drawn](), before, before + steps
        while place < end:
            round = int(np.searchsorted(self._ends, place, side="right"))
            known = round < len(self._ends)
            count = self._steps[round] if known else 1
            last = int(self._ends[round]) if known else place + 1
            if not known:
                round += place - (int(self._ends[-1]) if len(self._ends) else 0)
            offset = place - (last - count)
            taken = min(last, end) - place
            found.append(Drawn(round, count, offset, offset + taken))
            place += taken
        return found


class Runner:
    """Runs rounds of any number of local steps from any state.

    Args:
        setup: what is run.
        progress: called with the local steps of every round.
        sample: the number of examples of each worker on which f is evaluated; by default, all of them.
        like: the local steps of every round of another run. Each local step then takes the mini-batches of the same
            local step of that run, which goes on with one local step per round; by default, none is followed.
    """

    def __init__(
        self,
        setup: Setup,
        progress: Callable[[int], None] = lambda steps: None,
        sample: int | None = None,
        like: Sequence[int] | None = None,
    ) -> None:
        self._setup, self._progress, self._sample = setup, progress, sample
        self._shared = None if like is None else SharedDraws(like)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            setup, federation = self._setup, self._setup.federation
            stack.enter_context(one_thread())
            chunk = setup.compute.chunk or federation.chunk(
                setup.participation.num_participants(federation.num_workers)
            )
            self._watchable = not carries_statistics(federation)
            work = Work(federation, setup.algorithm, 1, setup.seed, chunk, self._sample)
            engine = stack.enter_context(make_engine(work, setup.compute))
            self._loop = Rounds(work, engine, setup.participation, setup.seed, setup.first_model)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def first_state(self) -> State:
        """The state before the first round."""
        return self._loop.first_state()

    def loss(self, state: State) -> float:
        """f at the global model; infinite if it is not a number."""
        loss = self._loop.loss(state.model)
        return loss if math.isfinite(loss) else math.inf

    def gradient(self, model: torch.Tensor) -> torch.Tensor:
        """The gradient of f."""
        return self._loop.evaluate(model)[1]

    def advance(self, state: State, local_steps: int, rounds: int, before: int = 0) -> State:
        """Run rounds of ``local_steps`` local steps each; stops early where the model is no longer finite.

        Args:
            state: where to begin.
            local_steps: of each round.
            rounds: how many.
            before: the local steps that led to the state.
        """
        for number in range(rounds):
            drawn = self._drawn(before + number * local_steps, local_steps)
            (state,), _ = self._loop.round(state, ends=(local_steps,), drawn=drawn)
            self._progress(local_steps)
            if not torch.isfinite(state.model.sum()):
                break
        return state

    def _drawn(self, before: int, local_steps: int) -> Sequence[Drawn]:
        return () if self._shared is None else self._shared.of(before, local_steps)

    def follow(
        self,
        name: str,
        rounds: Sequence[int],
        every: int,
        *,
        goal: float = -math.inf,
        watched: Collection[int] = (),
        kept: PartStore | None = None,
        middle: Callable[[torch.Tensor], None] = lambda model: None,
    ) -> Track:
        """Run from the first model, and note f about every so many steps and wherever the local steps change.

        Args:
            name: of the run among the parts that are kept.
            rounds: the local steps of every round.
            every: the local steps between records.
            goal: a value of f at which the run ends; it also ends where f is not finite.
            watched: the numbers of rounds in which it is observed how far the local models drift apart.
            kept: where the run is saved while it goes on, and resumed.
            middle: called with the model halfway.

        Returns:
            The run; if it was interrupted, up to there, and not complete.
        """
        kept = kept or PartStore(None, {})
        now = self._resumed(kept, name)
        half = sum(rounds) / 2
        try:
            while now.rounds < len(rounds) and math.isfinite(now.losses[-1]) and now.losses[-1] > goal:
                steps = rounds[now.rounds]
                state, sight = now.state, None
                if now.rounds in watched:
                    state, sight = self.watch(state, steps, now.gradient_steps)
                else:
                    state = self.advance(state, steps, 1, now.gradient_steps)
                if now.gradient_steps < half <= now.gradient_steps + steps:
                    middle(state.model)
                now.state, now.rounds, now.gradient_steps = state, now.rounds + 1, now.gradient_steps + steps
                if sight is not None:
                    now.sights.append(sight)
                    now.passes += 3
                changes = now.rounds == len(rounds) or rounds[now.rounds] != steps
                if now.gradient_steps - now.steps[-1] >= every or changes:
                    loss = self.loss(state)
                    now.passes += 1
                    now.steps.append(now.gradient_steps)
                    now.losses.append(loss)
                    if len(now.losses) % _KEPT == 0:
                        self._save(kept, name, now)
        except KeyboardInterrupt:
            self._save(kept, name, now)
            return now.track(complete=False)
        track = now.track(complete=True)
        kept.write(name, track.to_json())
        kept.forget_state(name)
        return track

    def _resumed(self, kept: PartStore, name: str) -> _Progress:
        """The run where it was saved last, or at its beginning."""
        known = kept.read(name)
        if known is not None:
            track = Track.from_json(known)
            state = self.first_state() if track.complete else kept.read_state(name, track.rounds)
            if state is not None:
                self._progress(track.gradient_steps)
                numbers = (track.rounds, track.gradient_steps, track.passes)
                return _Progress(state, list(track.steps), list(track.losses), *numbers, list(track.sights))
        state = self.first_state()
        return _Progress(state, [0], [self.loss(state)], passes=1)

    @staticmethod
    def _save(kept: PartStore, name: str, now: _Progress) -> None:
        kept.write_state(name, now.state)
        kept.write(name, now.track(complete=False).to_json())

    def watch(self, state: State, local_steps: int, before: int = 0) -> tuple[State, Sight | None]:
        """Run one round, and observe how far the local models drift apart in it."""
        if not self._watchable:
            return self.advance(state, local_steps, 1, before), None
        _, gradient = self._loop.evaluate(state.model)
        drawn = self._drawn(before, local_steps)
        (state,), drift = self._loop.round(state, gradient, ends=(local_steps,), drawn=drawn)
        self._progress(local_steps)
        if drift.spread is None or drift.deviation2 is None or drift.zeta2 is None:
            return state, None
        numbers = (drift.spread, drift.deviation2, drift.zeta2, float(gradient @ gradient))
        return state, Sight(local_steps, *numbers) if all(map(math.isfinite, numbers)) else None


EVALUATIONS = RECORDS + 44
"""About how often f is evaluated: along a run, and where the local steps change."""
CHEAP = 10**12
"""Products of two numbers in all evaluations together up to which they are exact: about a minute."""
LEAST = 5000
"""Examples of all workers together on which f is evaluated in any case: with a tenth, progress drowned in chance."""


def sample_of(setup: Setup, sample: int | None, steps: int) -> int | None:
    """The number of examples of each worker on which f is evaluated; None for all of them.

    By default, evaluations take about a quarter of the work, where they take long at all, or more to have enough
    examples.

    Args:
        setup: what is gauged.
        sample: the number that the user wants, if any.
        steps: of all runs together.
    """
    federation: Any = setup.federation
    if not isinstance(federation, HasEffort):
        return None
    sizes = federation.sizes(np.arange(federation.num_workers))
    if sample is None:
        if EVALUATIONS * int(sizes.sum()) * federation.effort() <= CHEAP:
            return None
        # A forward pass takes a third of what a gradient takes.
        work = steps * setup.participation.num_participants(federation.num_workers) * federation.batch_size
        wanted = max(LEAST, 3 * work * SHARE / (1 - SHARE) / EVALUATIONS)
        sample = math.ceil(wanted / federation.num_workers)
    return sample if sample < sizes.max() else None
