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
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedgauge.algorithms import described
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.algorithms.paces import Rule
from fedgauge.base.errors import InputError
from fedgauge.base.progress import reported, silent
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.federation.identity import digest_of
from fedgauge.federation.protocols import Federation, HasSampleNoise
from fedgauge.measurement.gauge.comparison import PHASES, Comparison
from fedgauge.measurement.gauge.efficiency import (
    BaseCurve,
    between,
    falling,
    next_number,
)
from fedgauge.measurement.gauge.probes import Base, Runner, sample_of_looks
from fedgauge.measurement.gauge.reference import check_base, check_efficiencies, reference_for, stalled_at
from fedgauge.measurement.gauge.result import (
    AROUND,
    Cause,
    Efficiency,
    GaugeOptions,
    GaugeResult,
    Phase,
    Spent,
    affordable,
    explained,
    recommended,
)
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.values import Reading
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import setup_of
from fedgauge.simulation.setup import Setup
from fedgauge.values import Estimate

if TYPE_CHECKING:
    pass

_SAMPLES = 32
"""Samples of each worker from which sigma is estimated."""
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
        each = 1 if isinstance(steps, Pace | Rule) else round(float(np.mean(steps)))
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
        if not isinstance(steps, int | Pace | Rule):
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
        runner = stack.enter_context(
            Runner(replace(self._setup, algorithm=self._reference), self._advanced, self._sample)
        )
        base = self._base_run(runner)
        passes, self._taken = len(base.losses), base.steps[-1]
        complete = base.complete
        if complete:
            base, curve, goal = self._way(base)
        else:
            self._notes.append(f"The gauge was interrupted after {base.steps[-1]} steps of its base run.")
            curve, goal = BaseCurve(base.steps, base.losses), base.losses[-1]
        if complete and self._is_other:
            stack.close()
            runner = stack.enter_context(Runner(self._setup, self._advanced, self._sample))
        runner.gradient_steps, runner.rounds, runner.passes = 0, 0, passes
        budget = self._options.budget_of(self._taken)
        what = (self._setup, self._options, self._kept, runner, base, curve, goal, budget, self._is_other)
        comparison, cause = Comparison(*what, notes=self._notes), None
        if complete:
            try:
                self._measure(comparison)
                cause = self._explained(comparison)
            except KeyboardInterrupt:
                self._notes.append("The gauge was interrupted; it has what was measured before.")
                complete = False
            found = comparison.efficiencies.values()
            self._notes += check_efficiencies(found, self._setup.algorithm, self._reference)
        if complete:
            self._kept.forget_states()
        return self._result(comparison, cause, complete)

    def _base_run(self, runner: Runner) -> Base:
        kept = 1 if self._options.around else _KEPT
        marks = sorted({round(self._steps * k / kept) for k in range(kept)})
        if not self._options.around:
            marks.append(self._steps)
        return runner.base(self._steps, marks, self._goal, self._kept)

    def _way(self, base: Base) -> tuple[Base, BaseCurve, float]:
        """The base run up to where it stalls, f along it, and the value of f at which the comparison ends."""
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
        return base, curve, goal

    def _explained(self, comparison: Comparison) -> Cause | None:
        """Why local steps are lost; no explanation is worth an answer, so what cannot be measured is left out."""
        if not comparison.observed:
            return None
        try:
            sigma2 = self._kept.once("sigma2", partial(self._sigma2, comparison.base))
        except InputError as error:
            self._notes.append(
                f"Why local steps are lost cannot be said, because sigma cannot be measured here: {error}"
            )
            return None
        found, observed = comparison.efficiencies, comparison.observed
        return explained(self._setup, found, observed, sigma2, self._options.threshold)

    def _sigma2(self, base: Base) -> float:
        """The variance of a stochastic gradient halfway along the base run, averaged over workers."""
        setup, states = self._setup, sorted(base.states)
        federation, weights = setup.federation, setup.participation.weights
        # Where examples do not add up to a gradient (dropout, batch normalisation), whole gradients are drawn.
        samples = _SAMPLES if isinstance(federation, HasSampleNoise) and federation.averages_samples else None
        with Meter(federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
            drawn = noise(meter, base.states[states[len(states) // 2]].model, samples=samples)
        return float(drawn.constants["sigma_rms"].value) ** 2

    def _measure(self, comparison: Comparison) -> None:
        given = self._options.local_steps
        wanted = sorted({each for each in given or () if each > 1}, reverse=True)
        unpaid: set[int] = set()
        while following := self._following(comparison, wanted, unpaid):
            self._what = f"{following} local steps"
            others = len(wanted) if given else None
            if not comparison.measure(following, others):
                comparison.notes.append(
                    f"{following} local steps were not measured: the budget of {comparison.budget} steps is too small"
                    " for them."
                )
                unpaid.add(following)

    def _following(self, comparison: Comparison, wanted: list[int], unpaid: set[int]) -> int | None:
        """The number of local steps to measure next: one that the user wants, or one that follows from the others."""
        if self._options.local_steps:
            return wanted.pop() if wanted else None
        values = {steps: each.value or 0.0 for steps, each in comparison.efficiencies.items()}
        return next_number(values, unpaid, self._options.threshold)

    def _result(self, comparison: Comparison, cause: Cause | None, complete: bool) -> GaugeResult:
        options, base, runner = self._options, comparison.base, comparison.runner
        reference = Efficiency(1, 1.0, 1.0, 1.0, "reference")
        measured = [each for _, each in sorted(comparison.efficiencies.items())]
        # Only of one and the same algorithm are more local steps never more efficient.
        found = (reference, *measured) if self._is_other else tuple(between([reference, *falling(measured)]))
        end, number = base.steps[-1], len(PHASES)
        phases = tuple(
            Phase(
                name,
                round(k * end / number),
                round((k + 1) * end / number),
                tuple(parts[k] for _, parts in sorted(comparison.parts.items()) if k < len(parts)),
            )
            for k, name in enumerate(PHASES if comparison.parts else ())
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
            goal=comparison.goal,
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
            cause=cause,
            base=described(self._reference) if self._is_other else None,
        )


MEANING = "What share of the local steps counts around this model, measured directly."


def gauge_reading(setup: Setup, progress: Progress = silent) -> Reading:
    """Gauge around the set-up's first model, with its own number of local steps."""
    steps = setup.fixed_steps
    if not isinstance(steps, int):
        raise InputError("The gauge needs the same number of local steps for all workers; give local_steps as one.")
    found = gauge(setup, options=GaugeOptions(local_steps=(steps,), around=True), progress=progress)
    last, details = found.efficiency[-1], found.to_json()
    if last.value is None or steps == 1:
        note = f"Of {last.local_steps} local steps, {last.share} count; a number cannot be given."
        if steps == 1:
            note = "With one local step per round, every step counts by definition."
        return Reading("gauge", MEANING, details=details, notes=(note, *found.notes))
    cost = {"gradient steps": float(found.spent.gradient_steps + found.spent.base_gradient_steps)}
    method = f"probes with {steps} local steps around the model"
    E = Estimate("E", last.value, last.low, last.high, "sample", method, cost=cost)
    return Reading("gauge", MEANING, (E,), details, found.notes)
