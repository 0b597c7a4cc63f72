"""Who decides the local steps of a run: the caller once and for all, or a pace as the run goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.simulation.rounds import Rounds
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.values import Round


class Pacing(Protocol):
    """What the round loop asks about local steps."""

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The objective f and its gradient, for a record."""

    def elapsed(self, round: int) -> float | None:
        """Seconds before a round according to a cost model, if there is one."""

    def ends(self, recorded: bool) -> tuple[int, ...] | None:
        """The numbers of local steps after which a round is examined, the last being its own; None for the usual."""

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """The completed record of a round, and the state of the next one, from the states at its ends."""


class FixedSteps:
    """Local steps that are the same in every round."""

    def __init__(self, rounds: Rounds) -> None:
        self.evaluate = rounds.evaluate

    def elapsed(self, round: int) -> None:
        """Nothing is known about time."""

    def ends(self, recorded: bool) -> None:
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

    def evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The objective f and its gradient; computed only once for the model between two rounds."""
        if self._evaluated is None or self._evaluated[0] is not model:
            self._evaluated = (model, *self._rounds.evaluate(model))
        return self._evaluated[1:]

    def elapsed(self, round: int) -> float:
        """Seconds before a round, according to the cost model."""
        return self._pace.elapsed(self._state, round)

    def ends(self, recorded: bool) -> tuple[int, ...]:
        """The numbers of local steps at which the round is examined, if it is, and then its own number."""
        decision = self._state.decision
        return (*decision.look, decision.local_steps) if recorded else (decision.local_steps,)

    def decide(self, record: Round, before: State, ends: Sequence[State]) -> tuple[Round, State]:
        """Complete the record with what the pace observed and decided, and go on from the end that it chose."""
        path = []
        for end in ends:
            loss, gradient = self.evaluate(end.model)
            path.append(loss if np.isfinite(loss) and torch.isfinite(gradient.sum()) else float("inf"))
        examined = self.ends(recorded=True)
        record = dataclasses.replace(record, looked=examined, path=tuple(path))
        taken = self._pace.take(self._state, record)
        record = dataclasses.replace(record, taken=taken)
        self._state, decision = self._pace.step(self._state, record)
        undone = dataclasses.replace(before, round=before.round + 1)
        states = dict(zip((0, *examined), (undone, *ends), strict=True))
        return dataclasses.replace(record, why=decision.why), states[taken]
