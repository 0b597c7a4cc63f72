"""Runs of their own for numbers of local steps on which a recommendation rests and of which one run says too little.

These are larger numbers than were tried, where the largest seems best and rounds are dear, and numbers with which so
many steps are lost that drift may keep them above the goal for ever. They have the mini-batches of the first run, step
by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedgauge.algorithms.live.gauge import FACTOR, WORTH
from fedgauge.measurement.gauge.curves import BaseCurve, efficiency_of
from fedgauge.measurement.gauge.runner import RECORDS, Track
from fedgauge.values.answer import Recommendation, StepEfficiency

_PATIENCE, _LEAST_ROUNDS, _MOST = 2, 6, 3
"""The steps of such a run in steps of the first, the fewest rounds that it must have, and how many are made at most."""
_DOUBTFUL = 0.5
"""Efficiencies below this are confirmed."""
_COME = 0.6
"""A run that has not come so far may never arrive, whatever its progress so far."""


@dataclass
class Confirmation:
    """Such runs, and what came of them.

    Attributes:
        run: makes one, with so many local steps for so many rounds, with f noted every so many steps.
        curve: f along training with one local step per round.
        goal: the value of f at which a run ends.
        steps: of the first run.
        overlap: communication runs beside this share of a round's local steps.
        tracks: the runs.
        tried: their local steps.
    """

    run: Callable[[int, int, int], Track]
    curve: BaseCurve
    goal: float
    steps: int
    overlap: float = 0.0
    tracks: list[Track] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)

    def make(
        self,
        found: Sequence[StepEfficiency],
        best: Callable[[Sequence[StepEfficiency]], Recommendation],
        cost: float,
        larger: bool = True,
    ) -> list[StepEfficiency]:
        """Run numbers, one after the other, until the recommendation rests on what is known well enough.

        Args:
            found: the efficiencies.
            best: the recommendation that follows from efficiencies.
            cost: of a round, in local steps.
            larger: whether larger numbers than those that were tried may be run, where the user has named none.

        Returns:
            The efficiencies with those of the runs.
        """
        known = {each.local_steps: each for each in found}
        while len(self.tried) < _MOST:
            following = self._following(known, best([known[steps] for steps in sorted(known)]), cost if larger else 0.0)
            if following is None or _PATIENCE * self.steps // following < _LEAST_ROUNDS:
                break
            measured = self._measure(following)
            if measured is None:
                break
            self.tried.add(following)
            known[following] = measured
        return [known[steps] for steps in sorted(known)]

    def _following(self, known: dict[int, StepEfficiency], best: Recommendation, cost: float) -> int | None:
        """The number to run; None if none is needed. At a cost of 0, no larger number is."""
        largest = max(known)
        now, then = (1 + max(cost / each - self.overlap, 0.0) for each in (largest, FACTOR * largest))
        if best.edge == "largest" and now / then >= WORTH:
            return FACTOR * largest
        following = min((each for each in known if each >= best.local_steps), default=1)
        doubtful = following in known and known[following].value < _DOUBTFUL and not known[following].limit
        return following if doubtful and following not in self.tried else None

    def _measure(self, local_steps: int) -> StepEfficiency | None:
        """The efficiency of a number by a run from the first model; None if that was interrupted."""
        rounds, every = _PATIENCE * self.steps // local_steps, max(self.steps // RECORDS // local_steps, 1)
        track = self.run(local_steps, rounds, every * local_steps)
        self.tracks.append(track)
        if not track.complete:
            return None
        way, last = self.curve.steps_at(self.goal), track.losses[-1]
        limit = StepEfficiency.at_most(local_steps, min(way / track.steps[-1], 1.0))
        if last > self.goal and not self.curve.steps_at(last) >= _COME * way:
            return limit
        return efficiency_of(local_steps, track, self.curve, self.goal) or limit
