"""Measure how many local steps a federation affords.

A base run with one local step per round says how many steps each way down in f takes when workers stay together. From
places along it, short probes with I local steps say how far they get with the same number of steps. First the drift
settles for as many rounds as are measured afterwards: the first round after a synchronous state is a shock. On a short
way, runs from the first model say more for the same steps; and where the base run has another algorithm
(:mod:`~fedgauge.measurement.gauge.reference`), only they can begin with a state of the algorithm's own.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from fedgauge.algorithms import described
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.federation.identity import digest_of
from fedgauge.federation.protocols import Federation, HasSampleNoise
from fedgauge.measurement.gauge.efficiency import (
    BaseCurve,
    GaugeRun,
    between,
    combined,
    efficiency_of,
    falling,
    has_stalled,
    measured,
    next_number,
    part,
    phases_of,
)
from fedgauge.measurement.gauge.probes import Base, Probe, Runner, sample_of_looks
from fedgauge.measurement.gauge.reference import check_base, check_efficiencies, reference_for, stalled_at
from fedgauge.measurement.gauge.result import (
    AROUND,
    Cause,
    Efficiency,
    GaugeOptions,
    GaugeResult,
    Phase,
    Sight,
    Spent,
    affordable,
    explained,
    recommended,
)
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import setup_of
from fedgauge.simulation.setup import Setup
from fedgauge.values.display import counted

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", Probe, GaugeRun)

PLACES = (3, 6)
"""From how many places each number of local steps is probed: the larger number if blocks of 128 steps fit in."""
_SHORT = 48
"""Where a probe could measure fewer steps than this, the way is short: its progress would drown in noise."""
_LEAST = 4
"""A run is not begun with fewer steps than the way's over this number."""
_PROBED = 6 / 7
"""The part of a number's share of the budget that goes into its probes."""
_SAMPLES = 32
"""Samples of each worker from which sigma is estimated."""
_RECORDS = 48
"""About how often f is recorded along a run."""
_PHASES = ("early", "middle", "late")
_KEPT = 24
"""How many states of the base run are kept for probes to start from."""
_OPTIONS = tuple(field.name for field in fields(GaugeOptions) if field.name != "local_steps")


@undisturbed
def gauge(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None = None,
    *,
    goal: float | str | None = None,
    cost: Cost | str | None = None,
    reference: Algorithm | None = None,
    options: GaugeOptions | None = None,
    directory: str | Path | None = None,
    progress: ProgressOption = "auto",
    **setup: Any,
) -> GaugeResult:
    """Measure the efficiency of local steps, and how many of them a federation affords.

    Args:
        source: a federation; or an experiment or set-up, which already contains the algorithm and everything else.
        algorithm: the algorithm, with the rate at which local steps are gauged.
        goal: the value of f at which the way ends, as a number or as in ``loss=0.3``; by default, where the base run
            ends.
        cost: the cost of a round, for the recommended number of local steps, or its name, as in ``cross-device``.
        reference: the algorithm of the base run, which local steps are compared with. By default, it is the algorithm
            itself with one local step per round; for one whose server does more than average, it is synchronous
            training with the same local optimiser and rate.
        options: what to measure, and how much it may cost.
        directory: a directory for finished parts, so that an interrupted gauge is resumed; by default, none is kept.
        progress: called with what is being done, and how many steps of how many are done. By default, a bar is shown on
            a terminal and in a notebook; None shows nothing.
        setup: further fields of :class:`~fedgauge.Setup`, such as ``participation`` and ``seed``, and of
            :class:`~fedgauge.GaugeOptions`, except for ``local_steps``.

    Returns:
        The result. If it was interrupted, it has what was measured before, and ``complete`` is false.

    >>> from fedgauge import fedavg, random_quadratics
    >>> same = random_quadratics(4, 3, hessian_spread=0.0)
    >>> found = gauge(same, fedavg(gamma=0.02), options=GaugeOptions(steps=200, local_steps=[4, 16]))
    >>> [round(each.value, 2) for each in found.efficiency]
    [1.0, 1.0, 1.0]
    """
    if not isinstance(options, GaugeOptions | None):
        raise InputError(f"options must be GaugeOptions, as in options=GaugeOptions(steps=200), not {options!r}.")
    chosen = {name: setup.pop(name) for name in _OPTIONS if name in setup}
    options = replace(options or GaugeOptions(), **chosen)
    shared = setup_of(source, algorithm, **setup)
    with reported(progress) as tell:
        return _Gauge(shared, read_goal(goal), cost, reference, options, directory, tell).run()


def read_goal(goal: float | str | None) -> float | None:
    """The value of f that a goal such as ``loss=0.3`` names.

    >>> read_goal("loss=0.3"), read_goal(0.3)
    (0.3, 0.3)
    """
    name, _, value = ("loss", "", goal) if not isinstance(goal, str) else (part.strip() for part in goal.partition("="))
    try:
        if name == "loss":
            found = None if value is None else float(cast(Any, value))
            if found is None or math.isfinite(found):
                return found
    except (TypeError, ValueError):
        pass
    raise InputError(f"The goal of the gauge must be a loss, as in loss=0.3, not {goal!r}.")


class _Gauge:
    """One gauge while it is taken."""

    def __init__(
        self,
        setup: Setup,
        goal: float | None,
        cost: Cost | str | None,
        reference: Algorithm | None,
        options: GaugeOptions,
        directory: str | Path | None,
        progress: Progress,
    ) -> None:
        self._setup, self._goal, self._options, self._progress = setup, goal, options, progress
        self._reference, self._notes = reference_for(setup.algorithm, reference)
        self._is_other = self._reference is not setup.algorithm
        self._cost = None if cost is None else Cost.of(cost).completed(setup.federation)
        steps = setup.local_steps
        each = 1 if isinstance(steps, Pace) else round(float(np.mean(steps)))
        self._steps = options.steps or (AROUND if options.around else setup.rounds * each)
        self._settings: dict[str, Any] = {
            "experiment": dict(setup.experiment),
            "federation": setup.federation.digest,
            "algorithm": described(setup.algorithm),
            "participation": setup.participation.to_json(),
            "seed": setup.seed,
        }
        if self._is_other:
            self._settings["reference"] = described(self._reference)
        if setup.start is not None:
            self._settings["start"] = digest_of(setup.first_model)
        self._sample = sample_of_looks(setup, options, self._steps)
        if self._sample is not None:
            self._settings["sample"] = self._sample
        # Only what determines the parts: they do not depend on the threshold, the cost or the processes.
        parts = {**self._settings, "experiment": None, "steps": self._steps, "goal": goal}
        if options.around:
            parts["around"] = True
        self._kept = PartStore(None if directory is None else Path(directory), parts)
        self._what, self._done = "base run", 0
        self._found: dict[int, Efficiency] = {}
        self._parts: dict[int, list[Efficiency]] = {}
        self._seen: dict[int, Sight] = {}
        self._cause: Cause | None = None
        if not isinstance(steps, int | Pace):
            self._notes.append("The workers' own numbers of local steps differ; here all workers take the same number.")
        if self._sample is not None:
            self._notes.append(
                f"f is looked at with {self._sample} examples of each worker at most, always the same ones; for all of"
                " them, give a larger sample."
            )

    def _advanced(self, steps: int) -> None:
        self._done += steps
        self._progress(self._what, self._done, self._steps if self._what == "base run" else None)

    def run(self) -> GaugeResult:
        try:
            with ExitStack() as stack:
                return self._run_all(stack)
        finally:
            self._kept.close()

    def _run_all(self, stack: ExitStack) -> GaugeResult:
        """Take the base run, then measure; the runners' processes live as long as the stack."""
        setup, complete = replace(self._setup, algorithm=self._reference), True
        runner = stack.enter_context(Runner(setup, self._advanced, self._sample))
        kept = 1 if self._options.around else _KEPT
        marks = sorted({round(self._steps * k / kept) for k in range(kept)})
        if not self._options.around:
            marks.append(self._steps)
        base = runner.base(self._steps, marks, self._goal, self._kept)
        passes, self._taken = len(base.losses), base.steps[-1]
        if not base.complete:
            runner.gradient_steps = runner.rounds = 0
            self._notes.append(f"The gauge was interrupted after {base.steps[-1]} steps of its base run.")
            return self._result(runner, base, base.losses[-1], False)
        if not math.isfinite(base.losses[-1]):
            raise InputError("The base run with one local step diverges at this rate; choose a smaller gamma or eta.")
        curve = BaseCurve(base.steps, base.losses)
        goal = check_base(curve, self._goal)
        if self._goal is None and (flat := stalled_at(curve)) is not None:
            self._notes.append(
                f"After {flat} of the {self._taken} steps of the base run f falls by less than its noise, so the"
                " comparison ends there."
            )
            base = base.until(flat)
            curve = BaseCurve(base.steps, base.losses)
            goal = check_base(curve, None)
        if self._is_other:
            stack.close()
            runner = stack.enter_context(Runner(self._setup, self._advanced, self._sample))
        self._budget = self._options.budget_of(self._taken)
        self._share = self._budget / 4 * _PROBED
        runner.gradient_steps = runner.rounds = 0
        runner.passes = passes
        try:
            self._measure(runner, base, curve, goal)
            self._cause = self._explained(base)
        except KeyboardInterrupt:
            self._notes.append("The gauge was interrupted; it has what was measured before.")
            complete = False
        self._notes += check_efficiencies(self._found.values(), self._setup.algorithm, self._reference)
        if complete:
            self._kept.forget_states()
        return self._result(runner, base, goal, complete)

    def _explained(self, base: Base) -> Cause | None:
        """Why local steps are lost; no explanation is worth an answer, so what cannot be measured is left out."""
        if not self._seen:
            return None
        try:
            sigma2 = self._kept.once("sigma2", partial(self._sigma2, base))
        except InputError as error:
            self._notes.append(
                f"Why local steps are lost cannot be said, because sigma cannot be measured here: {error}"
            )
            return None
        return explained(self._setup, self._found, self._seen, sigma2, self._options.threshold)

    def _sigma2(self, base: Base) -> float:
        """The variance of a stochastic gradient halfway along the base run, averaged over workers."""
        setup, states = self._setup, sorted(base.states)
        federation, weights = setup.federation, setup.participation.weights
        # Where examples do not add up to a gradient (dropout, batch normalisation), whole gradients are drawn.
        samples = _SAMPLES if isinstance(federation, HasSampleNoise) and federation.averages_samples else None
        with Meter(federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
            found = noise(meter, base.states[states[len(states) // 2]].model, samples=samples)
        return float(found.constants["sigma_rms"].value) ** 2

    def _measure(self, runner: Runner, base: Base, curve: BaseCurve, goal: float) -> None:
        given = self._options.local_steps
        wanted = sorted({each for each in given or () if each > 1}, reverse=True)
        unpaid: set[int] = set()
        while following := self._following(wanted, unpaid):
            self._what = f"{following} local steps"
            others = len(wanted) if given else None
            if not self._measure_one(runner, base, curve, goal, following, others):
                self._notes.append(
                    f"{following} local steps were not measured: the budget of {self._budget} steps does not pay for"
                    " them."
                )
                unpaid.add(following)

    def _following(self, wanted: list[int], unpaid: set[int]) -> int | None:
        """The number of local steps to measure next: one that the user wants, or one that follows from what is seen."""
        if self._options.local_steps:
            return wanted.pop() if wanted else None
        values = {steps: each.value or 0.0 for steps, each in self._found.items()}
        return next_number(values, unpaid, self._options.threshold)

    def _measure_one(
        self, runner: Runner, base: Base, curve: BaseCurve, goal: float, local_steps: int, others: int | None
    ) -> bool:
        """Measure one number of local steps, by a run on a short way; False if the budget does not pay for it.

        Args:
            runner: runs rounds.
            base: the base run.
            curve: its curve.
            goal: where the way ends.
            local_steps: the number.
            others: how many numbers are still to be measured after it; None if that depends on what is seen.
        """
        long = self._options.around or self._share / (2 * PLACES[0]) >= _SHORT
        if long and not self._is_other:
            return self._probe(runner, base, curve, goal, local_steps)
        way, left = base.steps[-1], self._budget - runner.gradient_steps
        most = max(left // 2, min(left, way)) if others is None else left // (others + 1)
        if most // local_steps * local_steps < way / _LEAST:
            return False
        self._run(runner, base, curve, goal, local_steps, most)
        return True

    def _run(self, runner: Runner, base: Base, curve: BaseCurve, goal: float, local_steps: int, most: int) -> None:
        """Run with I local steps from the first model, for so many steps at most."""
        way = base.steps[-1]
        every = max(way // _RECORDS // local_steps, 1)
        watched = min(most, way) // 2 if self._setup.algorithm.sgd_rate is not None else None
        compute = partial(runner.run, local_steps, most, goal, every, watched)
        run = self._once(runner, f"run-{local_steps}-{most}", compute)
        if run.sight is not None:
            self._seen[local_steps] = run.sight
        found = self._found[local_steps] = efficiency_of(run, curve, goal)
        if parts := phases_of(run, curve, goal, len(_PHASES)):
            self._parts[local_steps] = parts
        if found.how == "part":
            come = curve.steps_at(run.losses[-1]) / curve.steps_at(goal)
            self._notes.append(
                f"With {counted(local_steps, 'local step')}, the budget ended after {come:.0%} of the way; the rest is"
                " extrapolated."
            )
        elif found.value is None and has_stalled(run, curve):
            self._notes.append(
                f"With {counted(local_steps, 'local step')}, f hardly falls any more above the goal: drift may put it"
                " out of reach."
            )
        elif found.value is None:
            self._notes.append(
                f"With {counted(local_steps, 'local step')}, the budget ended before enough of the way was seen for a"
                " number."
            )

    def _probe(self, runner: Runner, base: Base, curve: BaseCurve, goal: float, local_steps: int) -> bool:
        """Measure one number of local steps by probes along the base run; False if the budget does not pay for it."""
        end = base.steps[-1]
        # A part of the share is for the look at the end of the way.
        share, left = self._share, self._budget - runner.gradient_steps
        places = max((each for each in PLACES if each * 256 <= share), default=PLACES[0])
        places = 1 if self._options.around else places
        rounds = max(int(share / (2 * places) / local_steps), 2)
        if 2 * (places + 1) * rounds * local_steps > left:
            rounds = 1
        price = 2 * places * rounds * local_steps
        look = 0 if self._options.around else math.ceil(rounds / 2)
        if price <= left < price + 2 * look * local_steps:
            look = 0
            self._notes.append(
                f"Whether drift puts the goal out of reach with {counted(local_steps, 'local step')} was not looked at:"
                f" the budget of {self._budget} steps does not pay for it."
            )
        known = [each.value for each in self._found.values() if each.value]
        whole = end / min([*known, 1.0])
        if price > min(left, whole) and whole <= left:
            self._run(runner, base, curve, goal, local_steps, left)
            return True
        if price > left:
            return False
        steps = rounds * local_steps
        states = sorted(base.states)
        plain = self._setup.algorithm.sgd_rate is not None
        parts = []
        for k in range(places):
            # The measured steps are in the middle of their part of the base run.
            wanted = max((k + 0.5) * end / places - 1.5 * steps, 0)
            place = max(each for each in states if each <= wanted)
            name = f"probe-{local_steps}-{place}-{rounds}"
            watch = plain and k == places // 2
            run_it = partial(runner.probe, base.states[place], local_steps, rounds, rounds, watch)
            probe = self._once(runner, name, run_it)
            if probe.sight is not None:
                self._seen[local_steps] = probe.sight
            begin, done = curve.steps_at(probe.before), 0.0
            if math.isfinite(probe.after):
                done = curve.steps_at(probe.after) - begin
            scatter = min(curve.noise_at(begin + done), 100.0 * end)
            parts.append(measured(local_steps, done / probe.steps, scatter / probe.steps))
        if each := places // len(_PHASES):
            self._parts[local_steps] = [part(parts[k : k + each]) for k in range(0, places, each)]
        self._found[local_steps] = combined(parts)
        if look and self._is_out_of_reach(runner, base, curve, goal, local_steps, look):
            most = min(self._found[local_steps].high, 1.0)
            self._found[local_steps] = Efficiency(local_steps, None, 0.0, most)
            self._notes.append(
                f"With {counted(local_steps, 'local step')}, f rises again from where the base run ends: drift may put"
                " the goal out of reach."
            )
        return True

    def _is_out_of_reach(
        self, runner: Runner, base: Base, curve: BaseCurve, goal: float, local_steps: int, rounds: int
    ) -> bool:
        """Whether f rises from the end of the base run and does not come back: drift then keeps it above the goal."""
        last = max(base.states)
        if last < base.steps[-1]:
            return False  # the goal was reached between two places, and the state there was not kept
        run = partial(runner.probe, base.states[last], local_steps, rounds, rounds)
        probe = self._once(runner, f"end-{local_steps}-{rounds}", run)
        above = goal + 2 * curve.scatter_at(last)
        return min(probe.before, probe.after) > above and not probe.after < probe.before

    def _once(self, runner: Runner, name: str, compute: Callable[[], T]) -> T:
        """A probe or a run: the one that is kept, with what it cost, or a new one."""
        before = runner.gradient_steps, runner.rounds, runner.passes
        known = self._kept.read(name)
        if known is not None:
            runner.gradient_steps += known["gradient_steps"]
            runner.rounds += known["rounds"]
            runner.passes += known["passes"]
            kind = GaugeRun if "losses" in known["found"] else Probe
            return cast(T, kind.from_json(known["found"]))
        found = compute()
        after = runner.gradient_steps, runner.rounds, runner.passes
        names = ("gradient_steps", "rounds", "passes")
        cost = {name: now - then for name, now, then in zip(names, after, before, strict=True)}
        self._kept.write(name, {"found": found.to_json(), **cost})
        return found

    def _result(self, runner: Runner, base: Base, goal: float, complete: bool) -> GaugeResult:
        options = self._options
        reference = Efficiency(1, 1.0, 1.0, 1.0, "reference")
        measured = [self._found[each] for each in sorted(self._found)]
        # Only of one and the same algorithm are more local steps never more efficient.
        found = (reference, *measured) if self._is_other else tuple(between([reference, *falling(measured)]))
        end, number = base.steps[-1], len(_PHASES)
        phases = tuple(
            Phase(
                name,
                round(k * end / number),
                round((k + 1) * end / number),
                tuple(parts[k] for _, parts in sorted(self._parts.items()) if k < len(parts)),
            )
            for k, name in enumerate(_PHASES if self._parts else ())
        )
        curve = [each for each in found if each.value and each.how != "reference"] if self._is_other else found
        best = None
        if self._cost is not None:
            M = self._setup.participation.num_participants(self._setup.num_workers)
            best = recommended(curve or found, self._cost.communication(M), self._cost.step or 0.0)
        thresholds = sorted({options.threshold, 0.8, 0.5}, reverse=True)
        return GaugeResult(
            settings=self._settings,
            threshold=options.threshold,
            reference=1,
            goal=goal,
            efficiency=found,
            affordable={f"{each:g}": affordable(curve, each) for each in thresholds},
            recommended=best,
            phases=phases,
            spent=Spent(runner.gradient_steps, runner.rounds, self._taken, runner.passes),
            steps=tuple(base.steps),
            losses=tuple(base.losses),
            cost=self._cost,
            notes=tuple(self._notes),
            complete=complete,
            cause=self._cause,
            base=described(self._reference) if self._is_other else None,
        )
