"""One number of local steps compared with the base run: by probes from places along it, or by a run of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from fedgauge.measurement.gauge.efficiency import (
    BaseCurve,
    GaugeRun,
    combined,
    efficiency_of,
    has_stalled,
    measured,
    part,
    phases_of,
)
from fedgauge.measurement.gauge.probes import Base, Probe, Runner
from fedgauge.measurement.gauge.result import Efficiency, GaugeOptions, Sight
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.simulation.setup import Setup
from fedgauge.values.display import counted

T = TypeVar("T", Probe, GaugeRun)

PLACES = (3, 6)
"""From how many places each number of local steps is probed: the larger number if blocks of 128 steps fit in."""
PHASES = ("early", "middle", "late")
_SHORT = 48
"""Where a probe could measure fewer steps than this, the way is short: its progress would drown in noise."""
_LEAST = 4
"""A run is not begun with fewer steps than the way's over this number."""
_PROBED = 6 / 7
"""The part of a number's share of the budget that goes into its probes."""
_RECORDS = 48
"""About how often f is recorded along a run."""


@dataclass
class Comparison:
    """What is compared with a base run, and what came of it.

    Attributes:
        setup: the federation, and the algorithm whose local steps are measured.
        options: of the gauge.
        store: finished parts.
        runner: runs rounds.
        base: the base run.
        curve: f along it.
        goal: the value of f at which the way ends.
        budget: steps that may be spent beyond the base run.
        is_other: whether the base run has another algorithm, so that its states are no places to start from.
        efficiencies: of every number of local steps that was measured.
        parts: the same early, in the middle and late in training.
        observed: how far local models drifted apart in one round of each.
        notes: what a reader should know.
    """

    setup: Setup
    options: GaugeOptions
    store: PartStore
    runner: Runner
    base: Base
    curve: BaseCurve
    goal: float
    budget: int
    is_other: bool
    efficiencies: dict[int, Efficiency] = field(default_factory=dict)
    parts: dict[int, list[Efficiency]] = field(default_factory=dict)
    observed: dict[int, Sight] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The steps for the probes of one number of local steps."""
        return self.budget / 4 * _PROBED

    def measure(self, local_steps: int, others: int | None) -> bool:
        """Measure one number of local steps, by a run where the way is short; False if the budget is too small for it.

        Args:
            local_steps: the number.
            others: how many numbers are still to be measured after it; None if that depends on what is observed.
        """
        long = self.options.around or self.share / (2 * PLACES[0]) >= _SHORT
        if long and not self.is_other:
            return self._probe(local_steps)
        way, left = self.base.steps[-1], self.budget - self.runner.gradient_steps
        most = max(left // 2, min(left, way)) if others is None else left // (others + 1)
        if most // local_steps * local_steps < way / _LEAST:
            return False
        self._run(local_steps, most)
        return True

    def _run(self, local_steps: int, most: int) -> None:
        """Run with I local steps from the first model, for so many steps at most."""
        way = self.base.steps[-1]
        every = max(way // _RECORDS // local_steps, 1)
        watched = min(most, way) // 2 if self.setup.algorithm.sgd_rate is not None else None
        compute = partial(self.runner.run, local_steps, most, self.goal, every, watched)
        run = self._once(f"run-{local_steps}-{most}", compute)
        if run.sight is not None:
            self.observed[local_steps] = run.sight
        found = self.efficiencies[local_steps] = efficiency_of(run, self.curve, self.goal)
        if parts := phases_of(run, self.curve, self.goal, len(PHASES)):
            self.parts[local_steps] = parts
        if found.how == "part":
            come = self.curve.steps_at(run.losses[-1]) / self.curve.steps_at(self.goal)
            self.notes.append(
                f"With {counted(local_steps, 'local step')}, the budget ended after {come:.0%} of the way; the rest is"
                " extrapolated."
            )
        elif found.value is None and has_stalled(run, self.curve):
            self.notes.append(
                f"With {counted(local_steps, 'local step')}, f hardly falls any more above the goal: drift may put it"
                " out of reach."
            )
        elif found.value is None:
            self.notes.append(
                f"With {counted(local_steps, 'local step')}, the budget ended before enough of the way was seen for a"
                " number."
            )

    def _probe(self, local_steps: int) -> bool:
        """Measure one number of local steps by probes along the base run; False if the budget does not pay for it."""
        end = self.base.steps[-1]
        # A part of the share is for the look at the end of the way.
        share, left = self.share, self.budget - self.runner.gradient_steps
        places = max((each for each in PLACES if each * 256 <= share), default=PLACES[0])
        places = 1 if self.options.around else places
        rounds = max(int(share / (2 * places) / local_steps), 2)
        if 2 * (places + 1) * rounds * local_steps > left:
            rounds = 1
        price = 2 * places * rounds * local_steps
        look = 0 if self.options.around else math.ceil(rounds / 2)
        if price <= left < price + 2 * look * local_steps:
            look = 0
            self.notes.append(
                f"Whether drift puts the goal out of reach with {counted(local_steps, 'local step')} was not looked at:"
                f" the budget of {self.budget} steps does not pay for it."
            )
        known = [each.value for each in self.efficiencies.values() if each.value]
        whole = end / min([*known, 1.0])
        if price > min(left, whole) and whole <= left:
            self._run(local_steps, left)
            return True
        if price > left:
            return False
        steps = rounds * local_steps
        states = sorted(self.base.states)
        plain = self.setup.algorithm.sgd_rate is not None
        parts = []
        for k in range(places):
            # The measured steps are in the middle of their part of the base run.
            wanted = max((k + 0.5) * end / places - 1.5 * steps, 0)
            place = max(each for each in states if each <= wanted)
            name = f"probe-{local_steps}-{place}-{rounds}"
            watch = plain and k == places // 2
            run_it = partial(self.runner.probe, self.base.states[place], local_steps, rounds, rounds, watch)
            probe = self._once(name, run_it)
            if probe.sight is not None:
                self.observed[local_steps] = probe.sight
            begin, done = self.curve.steps_at(probe.before), 0.0
            if math.isfinite(probe.after):
                done = self.curve.steps_at(probe.after) - begin
            scatter = min(self.curve.noise_at(begin + done), 100.0 * end)
            parts.append(measured(local_steps, done / probe.steps, scatter / probe.steps))
        if each := places // len(PHASES):
            self.parts[local_steps] = [part(parts[k : k + each]) for k in range(0, places, each)]
        self.efficiencies[local_steps] = combined(parts)
        if look and self._is_out_of_reach(local_steps, look):
            most = min(self.efficiencies[local_steps].high, 1.0)
            self.efficiencies[local_steps] = Efficiency(local_steps, None, 0.0, most)
            self.notes.append(
                f"With {counted(local_steps, 'local step')}, f rises again from where the base run ends: drift may put"
                " the goal out of reach."
            )
        return True

    def _is_out_of_reach(self, local_steps: int, rounds: int) -> bool:
        """Whether f rises from the end of the base run and does not come back: drift then keeps it above the goal."""
        last = max(self.base.states)
        if last < self.base.steps[-1]:
            return False  # the goal was reached between two places, and the state there was not kept
        run = partial(self.runner.probe, self.base.states[last], local_steps, rounds, rounds)
        probe = self._once(f"end-{local_steps}-{rounds}", run)
        above = self.goal + 2 * self.curve.scatter_at(last)
        return min(probe.before, probe.after) > above and not probe.after < probe.before

    def _once(self, name: str, compute: Callable[[], T]) -> T:
        """A probe or a run: the one that is kept, with what it cost, or a new one."""
        before = self.runner.gradient_steps, self.runner.rounds, self.runner.passes
        known = self.store.read(name)
        if known is not None:
            self.runner.gradient_steps += known["gradient_steps"]
            self.runner.rounds += known["rounds"]
            self.runner.passes += known["passes"]
            kind = GaugeRun if "losses" in known["found"] else Probe
            return cast(T, kind.from_json(known["found"]))
        found = compute()
        after = self.runner.gradient_steps, self.runner.rounds, self.runner.passes
        names = ("gradient_steps", "rounds", "passes")
        cost = {name: now - then for name, now, then in zip(names, after, before, strict=True)}
        self.store.write(name, {"found": found.to_json(), **cost})
        return found
