"""Who decides the local steps of a run: the caller once and for all, or a pace or a live gauge as the run goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.paces import Rate, Rule, advance, replayed
from fedgauge.simulation.rounds import Rounds
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.values import Round


@runtime_checkable
class StepChooser(Protocol):
    """Chooses the local steps of every round from the losses between rounds, as :class:`fedgauge.LiveGauge` does."""

    steps: int
    """Local steps of the whole run."""

    @property
    def local_steps(self) -> int:
        """The local steps of the next round."""

    @property
    def begun(self) -> bool:
        """Whether it knows of a round already."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What determines its choices, beside the losses."""

    def record(self, loss: float | None = None, taken: int | None = None) -> None:
        """Note that a round has ended, with the loss at the averaged model."""


class Pacing(Protocol):
    """What the round loop asks about local steps."""

    def is_over(self) -> bool:
        """Whether all local steps of the run have been taken, however many rounds are left."""

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The objective f and its gradient, for a record."""

    def elapsed(self, round: int) -> float | None:
        """Seconds before a round according to a cost model, if there is one."""

    def ends(self, record: Round | None) -> tuple[int, ...] | None:
        """The numbers of local steps after which a round is examined, the last being its own; None for the usual."""

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """The completed record of a round, and the state of the next one, from the states at its ends."""


class FixedSteps:
    """Local steps that are the same in every round."""

    def __init__(self, rounds: Rounds) -> None:
        self.evaluate = rounds.evaluate

    def is_over(self) -> bool:
        """The number of rounds alone decides."""
        return False

    def elapsed(self, round: int) -> None:
        """Nothing is known about time."""

    def ends(self, record: Round | None) -> None:
        """Rounds are not examined before their end."""

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """Go on from the end of the round."""
        return record, ends[-1]


class AdaptiveSteps:
    """Local steps that an adaptive pace chooses, from the losses within a round."""

    def __init__(self, pace: Pace, rounds: Rounds, records: Sequence[Round]) -> None:
        self._pace, self._rounds = pace, rounds
        self._state = pace.init()
        for record in records:
            self._state, _ = pace.step(self._state, record)
        self._evaluated: tuple[torch.Tensor, float, torch.Tensor] | None = None

    def is_over(self) -> bool:
        """The number of rounds alone decides."""
        return False

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The objective f and its gradient; computed only once for the model between two rounds."""
        if self._evaluated is None or self._evaluated[0] is not model:
            self._evaluated = (model, *self._rounds.evaluate(model))
        return self._evaluated[1:]

    def elapsed(self, round: int) -> float:
        """Seconds before a round, according to the cost model."""
        return self._pace.elapsed(self._state, round)

    def ends(self, record: Round | None) -> tuple[int, ...]:
        """The numbers of local steps at which the round is examined, if it is, and then its own number."""
        decision = self._state.decision
        return (decision.local_steps,) if record is None else (*decision.look, decision.local_steps)

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """Complete the record with what the pace observed and decided, and go on from the end that it chose."""
        path = []
        for end in ends:
            loss, gradient = self.evaluate(end.model)
            path.append(loss if np.isfinite(loss) and torch.isfinite(gradient.sum()) else float("inf"))
        examined = self.ends(record)
        record = dataclasses.replace(record, looked=examined, path=tuple(path))
        taken = self._pace.take(self._state, record)
        record = dataclasses.replace(record, taken=taken)
        self._state, decision = self._pace.step(self._state, record)
        undone = dataclasses.replace(before, round=before.round + 1)
        states = dict(zip((0, *examined), (undone, *ends), strict=True))
        return dataclasses.replace(record, why=decision.why), states[taken]


class ChosenSteps:
    """Local steps that a live gauge chooses; a resumed run makes its decisions again from the records."""

    def __init__(self, chooser: StepChooser, rounds: Rounds, records: Sequence[Round], round: int) -> None:
        self.evaluate = rounds.evaluate
        self._chooser, self._taken, self._last = chooser, 0, 0
        losses = {record.round: record.loss for record in records}
        for number in range(round):
            self._begin(losses.get(number))

    def _begin(self, loss: float | None) -> None:
        """Begin a round: the loss before it, if it was recorded, is the one after the round before."""
        if self._last:
            self._chooser.record(loss, self._last)
        self._last = self._chooser.local_steps
        self._taken += self._last

    def is_over(self) -> bool:
        """Whether the gauge's steps have been taken."""
        return self._taken >= self._chooser.steps

    def elapsed(self, round: int) -> None:
        """Nothing is known about time."""

    def ends(self, record: Round | None) -> tuple[int, ...]:
        """The local steps that the gauge chooses."""
        self._begin(None if record is None else record.loss)
        return (self._last,)

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """Note the steps that were taken, and go on from the end of the round."""
        return dataclasses.replace(record, taken=self._last), ends[-1]


class RuledSteps:
    """Local steps by a published rule; a resumed run makes its decisions again from the records."""

    def __init__(self, rule: Rule, rate: Rate, rounds: Rounds, records: Sequence[Round], round: int) -> None:
        self.evaluate = rounds.evaluate
        self._rule, self._rate = rule, rate
        self._place = replayed(rule, rate, records, round)[-1]

    def is_over(self) -> bool:
        """Whether the rule's steps have been taken."""
        return self._rule.steps is not None and self._place.taken >= self._rule.steps

    def elapsed(self, round: int) -> None:
        """Nothing is known about time."""

    def ends(self, record: Round | None) -> tuple[int, ...]:
        """The local steps that the rule has for the round."""
        self._place = advance(self._rule, self._rate, self._place, None if record is None else record.loss)
        return (self._place.local_steps,)

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """Note the steps that were taken, and go on from the end of the round."""
        return dataclasses.replace(record, taken=self._place.local_steps), ends[-1]
