"""Whole runs from the first model, one for each number of local steps: for runs that are too short to alternate in.

They are also what serves where the server remembers rounds, so that the number cannot change within a run. Each has the
mini-batches of the base run, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedgauge.measurement.gauge.cause import Sight
from fedgauge.measurement.gauge.curves import BaseCurve, efficiency_of, has_stalled, next_number, phases_of
from fedgauge.measurement.gauge.runner import Track
from fedgauge.values.answer import StepEfficiency
from fedgauge.values.display import counted

PHASES = ("early", "middle", "late")
_LEAST = 4
"""A run is not begun with fewer steps than those of the base run over this number."""
_RECORDS = 48
"""About how often f is recorded along a run."""

Run = Callable[[int, int, int, bool], Track]
"""Runs with so many local steps for so many rounds, with f noted every so many steps; the last says whether a round in
the middle is watched."""


@dataclass
class Runs:
    """Runs that are compared with a base run, and what came of them.

    Attributes:
        run: makes one.
        curve: f along the base run.
        goal: the value of f at which the comparison ends.
        budget: steps that may be spent beyond the base run.
        efficiencies: of every number of local steps that was run.
        unknown: numbers whose runs did not tell their efficiency.
        parts: the efficiencies early, in the middle and late in training.
        sights: how far local models drifted apart in one round of each.
        notes: what a reader should know.
        tracks: the runs.
        complete: whether none was interrupted.
    """

    run: Run
    curve: BaseCurve
    goal: float
    budget: int
    efficiencies: dict[int, StepEfficiency] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    parts: dict[int, list[StepEfficiency]] = field(default_factory=dict)
    sights: list[Sight] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    complete: bool = True

    @property
    def spent(self) -> int:
        """Steps beyond the base run."""
        return sum(track.gradient_steps for track in self.tracks)

    @property
    def phases(self) -> tuple[tuple[str, tuple[StepEfficiency, ...]], ...]:
        """The efficiencies early, in the middle and late, as far as runs got."""
        rows = [
            (name, tuple(parts[k] for _, parts in sorted(self.parts.items()) if k < len(parts)))
            for k, name in enumerate(PHASES)
        ]
        return tuple((name, row) for name, row in rows if row)

    def make(self, given: Sequence[int] | None) -> None:
        """Run every number that the user wants, or those that follow from what is observed.

        Args:
            given: the numbers that the user wants, if any.
        """
        wanted = sorted({each for each in given or () if each > 1}, reverse=True)
        unpaid: set[int] = set()
        while self.complete:
            if given:
                following = wanted.pop() if wanted else None
            else:
                values = {steps: each.value for steps, each in self.efficiencies.items()}
                following = next_number(values | dict.fromkeys(self.unknown, 0.0), unpaid)
            if following is None:
                return
            if not self._one(following, len(wanted) if given else None):
                unpaid.add(following)
                self.notes.append(
                    f"{following} local steps were not tried: the budget of {self.budget} steps is too small for them."
                )

    def _one(self, local_steps: int, others: int | None) -> bool:
        """Run with so many local steps; False if the budget is too small.

        Args:
            local_steps: the number.
            others: how many numbers follow; None if that depends on what is observed.
        """
        way, left = int(self.curve.steps[-1]), self.budget - self.spent
        most = max(left // 2, min(left, way)) if others is None else left // (others + 1)
        if most // local_steps * local_steps < way / _LEAST:
            return False
        every = max(way // _RECORDS // local_steps, 1) * local_steps
        track = self.run(local_steps, most // local_steps, every, True)
        self.tracks.append(track)
        self.sights += track.sights
        if not track.complete:
            self.complete = False
            return True
        found, steps = efficiency_of(local_steps, track, self.curve, self.goal), counted(local_steps, "local step")
        if found is None:
            self.unknown.add(local_steps)
            self.notes.append(f"With {steps}, the budget ended before f had fallen far enough for a number.")
            return True
        self.efficiencies[local_steps] = found
        if parts := phases_of(local_steps, track, self.curve, self.goal, len(PHASES)):
            self.parts[local_steps] = parts
        if found.limit and has_stalled(track, self.curve):
            self.notes.append(f"With {steps}, f hardly falls any more above the goal: drift may put it out of reach.")
        elif found.limit:
            self.notes.append(f"With {steps}, the budget ended before f had fallen far enough for a number.")
        elif track.losses[-1] > self.goal:
            come = self.curve.steps_at(track.losses[-1]) / self.curve.steps_at(self.goal)
            self.notes.append(
                f"With {steps}, the budget ended after {come:.0%} of the progress; the rest is extrapolated."
            )
        return True
