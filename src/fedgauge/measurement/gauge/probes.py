"""The runs behind the gauge: the base run, and short probes with more local steps from places along it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import torch

from fedgauge.base.codec import Value
from fedgauge.base.threads import one_thread
from fedgauge.federation.protocols import HasEffort, carries_statistics
from fedgauge.measurement.gauge.efficiency import GaugeRun
from fedgauge.measurement.gauge.result import GaugeOptions, Sight
from fedgauge.measurement.gauge.store import PartStore, StoredStates
from fedgauge.simulation.engines.local import make_engine
from fedgauge.simulation.records import SHARE
from fedgauge.simulation.rounds import Rounds
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.setup import Setup
from fedgauge.simulation.workers import Work

RECORDS = 96
"""About how often f is recorded along the base run."""


@dataclass(frozen=True)
class Base:
    """The base run: f after some of its steps, and its states at the places from which probes start.

    It is not complete if it was interrupted.
    """

    steps: Sequence[int]
    losses: Sequence[float]
    states: Mapping[int, State]
    complete: bool = True

    def until(self, step: int) -> Base:
        """The base run up to a step."""
        number = sum(each <= step for each in self.steps)
        states = self.states
        # Those that are kept on the disk stay there.
        some = states.until(step) if isinstance(states, StoredStates) else {k: states[k] for k in states if k <= step}
        return Base(self.steps[:number], self.losses[:number], some)


@dataclass(frozen=True)
class Probe(Value):
    """What I local steps did from one place: f before and after some steps of each worker, and the drift seen there."""

    steps: int
    before: float
    after: float
    sight: Sight | None = None


class Runner:
    """Runs rounds of any number of local steps from any state, and counts what they cost."""

    def __init__(
        self, setup: Setup, progress: Callable[[int], None] = lambda steps: None, sample: int | None = None
    ) -> None:
        self._setup, self._progress, self._sample = setup, progress, sample
        self.gradient_steps = self.rounds = self.passes = 0

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
        self.passes += 1
        loss = self._loop.loss(state.model)
        return loss if math.isfinite(loss) else math.inf

    def advance(self, state: State, local_steps: int, rounds: int) -> State:
        """Run rounds of ``local_steps`` local steps each; stops early where the model is no longer finite."""
        for _ in range(rounds):
            (state,), _ = self._loop.round(state, ends=(local_steps,))
            self._count(local_steps)
            if not torch.isfinite(state.model.sum()):
                break
        return state

    def _count(self, local_steps: int) -> None:
        self.rounds += 1
        self.gradient_steps += local_steps
        self._progress(local_steps)

    def base(self, steps: int, places: Sequence[int], goal: float | None = None, kept: PartStore | None = None) -> Base:
        """Run the base run, with one step per round, and keep its states at some places.

        Args:
            steps: the number of its steps.
            places: the steps after which its states are kept.
            goal: a value of f at which it ends earlier.
            kept: finished parts, with which an interrupted base run is resumed.
        """
        kept = kept or PartStore(None, {})
        every = max(steps // RECORDS, 1)
        marks = sorted({*range(0, steps, every), *places, steps})
        found = kept.read("base") or {"steps": [], "losses": []}
        taken: list[int] = found["steps"]
        losses: list[float] = found["losses"]
        wanted = [place for place in places if place in taken]
        at = [place for place in wanted if kept.read_state(place) is not None]
        if len(at) < len(wanted):
            taken, losses, at = [], [], []  # a state is missing, so they are all computed again
        state = (kept.read_state(max(at)) if at else None) or self.first_state()
        complete = True
        try:
            for mark in marks:
                if losses and (not math.isfinite(losses[-1]) or (goal is not None and losses[-1] <= goal)):
                    break
                if mark in taken:
                    continue
                state = self.advance(state, 1, mark - state.round)
                loss = self.loss(state)
                taken, losses = [*taken, mark], [*losses, loss]
                if mark in places:
                    at.append(mark)
                    kept.write_state(mark, state)
                    kept.write("base", {"steps": taken, "losses": losses})
        except KeyboardInterrupt:
            if not losses:
                raise
            complete = False
        else:
            kept.write("base", {"steps": taken, "losses": losses})
        return Base(taken, losses, StoredStates(kept, at), complete)

    def probe(self, state: State, local_steps: int, settle: int, measured: int, watch: bool = False) -> Probe:
        """Let the drift settle for some rounds, and then measure f before and after some more; watch one of these."""
        state = self.advance(state, local_steps, settle)
        before, sight, left = self.loss(state), None, measured
        if watch and self._watchable and math.isfinite(before):
            state, sight = self._watched(state, local_steps)
            left -= 1
        state = self.advance(state, local_steps, left)
        return Probe(local_steps * measured, before, self.loss(state), sight)

    def run(self, local_steps: int, most: int, goal: float, every: int, watched: int | None = None) -> GaugeRun:
        """Run from the first model to the goal, for so many steps at most, and record f every few rounds.

        Args:
            local_steps: I.
            most: the largest number of steps.
            goal: the value of f at which it ends.
            every: the number of rounds between records.
            watched: the step after which one round is watched; by default, none is.
        """
        state, steps, sight = self.first_state(), [0], None
        losses = [self.loss(state)]
        while losses[-1] > goal and math.isfinite(losses[-1]) and steps[-1] + local_steps <= most:
            rounds = min(every, (most - steps[-1]) // local_steps)
            steps.append(steps[-1] + rounds * local_steps)
            if watched is not None and self._watchable and watched < steps[-1]:
                watched, rounds = None, rounds - 1
                state, sight = self._watched(state, local_steps)
            state = self.advance(state, local_steps, rounds)
            losses.append(self.loss(state))
        return GaugeRun(local_steps, tuple(steps), tuple(losses), sight)

    def _watched(self, state: State, local_steps: int) -> tuple[State, Sight | None]:
        """Run one round, and see how far the local models drift apart in it."""
        _, gradient = self._loop.evaluate(state.model)
        (state,), seen = self._loop.round(state, gradient, ends=(local_steps,))
        self._count(local_steps)
        self.passes += 3
        if seen.spread is None or seen.deviation2 is None or seen.zeta2 is None:
            return state, None
        numbers = (seen.spread, seen.deviation2, seen.zeta2, float(gradient @ gradient))
        return state, Sight(*numbers) if all(map(math.isfinite, numbers)) else None


LOOKS = RECORDS + 44
"""About how often f is looked at: along the base run, and before and after every probe."""
CHEAP = 10**12
"""Products of two numbers in all looks together up to which they are exact: about a minute."""
LEAST = 5000
"""Examples of all workers together that are looked at in any case: with a tenth of that, progress drowned in chance."""


def sample_of_looks(setup: Setup, options: GaugeOptions, steps: int) -> int | None:
    """The number of examples of each worker that f is looked at with; None for all of them.

    By default, looks take about a quarter of the work, where they take long at all, or more to see enough examples.

    Args:
        setup: what is gauged.
        options: the sample that the user wants, if any, and the budget.
        steps: of the base run.
    """
    federation = setup.federation
    if not isinstance(federation, HasEffort):
        return None
    sizes = federation.sizes(np.arange(federation.num_workers))
    sample = options.sample
    if sample is None:
        if LOOKS * int(sizes.sum()) * federation.effort() <= CHEAP:
            return None
        # A forward pass takes a third of what a gradient takes.
        M = setup.participation.num_participants(federation.num_workers)
        work = (steps + options.budget_of(steps)) * M * federation.batch_size
        sample = math.ceil(max(LEAST, 3 * work * SHARE / (1 - SHARE) / LOOKS) / federation.num_workers)
    return sample if sample < sizes.max() else None
