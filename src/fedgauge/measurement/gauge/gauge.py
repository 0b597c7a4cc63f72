"""Measure the efficiency of local steps on a federation, and answer how many to take.

Where a run is long enough, the number of local steps changes within it, and what each number brings is fitted: the
answer costs no more than training. Where it is too short, or the server remembers rounds, a run with one local step
per round is compared with runs with more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedgauge.algorithms import described
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.algorithms.live.blocks import least_steps
from fedgauge.algorithms.paces import Chosen
from fedgauge.base.errors import InputError
from fedgauge.base.progress import reported, silent
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.federation.identity import digest_of
from fedgauge.federation.protocols import Federation, HasSampleNoise
from fedgauge.measurement.gauge.alternating import (
    USUAL,
    candidates_for,
    efficiencies,
    first_of_late_blocks,
    observed,
    reference_curve,
    reference_records,
    schedule,
    until,
)
from fedgauge.measurement.gauge.by_runs import Runs
from fedgauge.measurement.gauge.cause import Cause, Sight, explained
from fedgauge.measurement.gauge.confirmation import Confirmation
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge.measurement.gauge.preparation import priced, read_cost, read_goal, steps_of, with_rate
from fedgauge.measurement.gauge.reference import check_base, check_efficiencies, reference_for, stalled_at
from fedgauge.measurement.gauge.result import GaugeOptions, GaugeResult, RateSearch, Spent
from fedgauge.measurement.gauge.runner import RECORDS, Runner, Track, sample_of
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.values import Reading
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.setup import Setup
from fedgauge.values import Estimate
from fedgauge.values.answer import Answer, StepEfficiency
from fedgauge.values.display import counted

_SAMPLES = 32
"""Samples of each worker from which sigma is estimated."""
_OPTIONS = tuple(field.name for field in fields(GaugeOptions) if field.name != "local_steps")
_SYNCHRONOUS = "synchronous training"
_SURE = 0.95
"""How sure the recommendation must be for further runs to be spared."""
_APART = 10**6 + 3
"""The seeds of further runs are this far apart, so that they share no mini-batches with the runs of near seeds."""


@undisturbed
def gauge(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None = None,
    *,
    goal: float | str | None = None,
    cost: Cost | str | float | None = None,
    reference: Algorithm | None = None,
    options: GaugeOptions | None = None,
    directory: str | Path | None = None,
    progress: ProgressOption = "auto",
    **setup: Any,
) -> GaugeResult:
    """Measure the efficiency of local steps, and answer how many of them to take.

    Args:
        source: a federation; or an experiment or set-up, which already contains the algorithm and everything else.
        algorithm: the algorithm, with the rate at which local steps are gauged. Without one, it is FedAvg at the rate
            at which synchronous training is fastest, which is searched for; so it is for an experiment without gamma.
        goal: the value of f at which the comparison ends, as a number or as in ``loss=0.3``; by default, where the
            run ends.
        cost: what a round of communication costs, for the recommended number of local steps: a number of local steps,
            or a cost or its name, as in ``cross-device``.
        reference: the algorithm that local steps are compared with. By default, it is the algorithm itself with one
            local step per round; for one whose server does more than average, it is synchronous training with the same
            local optimiser and rate.
        options: what to measure, and how much it may cost.
        directory: a directory for finished parts, so that an interrupted gauge is resumed; by default, none is kept.
        progress: called with what is being done, and how many steps of how many are done. By default, a bar is shown on
            a terminal and in a notebook; None shows nothing.
        setup: further fields of :class:`~fedgauge.Setup`, such as ``participation`` and ``seed``, and of
            :class:`~fedgauge.GaugeOptions`, except for ``local_steps``.

    Returns:
        The result. If it was interrupted, it has what was measured before.

    >>> from fedgauge import fedavg, random_quadratics
    >>> same = random_quadratics(4, 3, hessian_spread=0.0)
    >>> found = gauge(same, fedavg(gamma=0.02), cost=100, options=GaugeOptions(steps=200, local_steps=[4, 16]))
    >>> [round(each.value, 1) for each in found.efficiency], found.answer.best().local_steps
    ([1.0, 1.0, 1.0], 16)
    """
    if not isinstance(options, GaugeOptions | None):
        raise InputError(f"options must be GaugeOptions, as in options=GaugeOptions(steps=200), not {options!r}.")
    chosen = {name: setup.pop(name) for name in _OPTIONS if name in setup}
    options = replace(options or GaugeOptions(), **chosen)
    end, price = read_goal(goal), read_cost(cost)
    with reported(progress) as tell:
        shared, rate = with_rate(source, algorithm, setup, options, directory, tell)
        return _Gauge(shared, end, price, reference, options, directory, tell, rate).run()


class _Gauge:
    """One gauge while it is taken."""

    def __init__(
        self,
        setup: Setup,
        goal: float | None,
        cost: Cost | None,
        reference: Algorithm | None,
        options: GaugeOptions,
        directory: str | Path | None,
        progress: Progress,
        rate: RateSearch | None = None,
    ) -> None:
        self._search = rate
        self._setup, self._goal, self._options, self._progress = setup, goal, options, progress
        self._reference, self._notes = reference_for(setup.algorithm, reference)
        self._is_other = self._reference is not setup.algorithm
        self._cost, self._price = cost, None
        if cost is not None:
            self._cost, self._price, note = priced(cost, setup)
            self._notes += note
        self._steps = steps_of(setup, options)
        remembers = self._is_other or setup.algorithm.synchronous is not None
        self._candidates = () if remembers else candidates_for(self._steps, options.local_steps)
        self._budget = options.budget or (0 if self._candidates else 2 * self._steps)
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
        self._sample = sample_of(setup, options.sample, self._steps + self._budget)
        if self._sample is not None:
            self._settings["sample"] = self._sample
        # Only what determines the parts: they depend neither on the cost nor on the processes.
        parts = {**self._settings, "experiment": None, "steps": self._steps, "goal": goal}
        self._kept = PartStore(None if directory is None else Path(directory), parts)
        self._what, self._done, self._total = "", 0, self._steps + self._budget
        self._tracks: list[Track] = []
        self._variance: Any = None
        if rate is not None:
            self._notes.append(rate.sentence)
        if not isinstance(setup.local_steps, int | Pace | Chosen):
            self._notes.append("The workers' own numbers of local steps differ; here all workers take the same number.")
        if self._sample is not None:
            self._notes.append(
                f"f is evaluated on {self._sample} examples of each worker at most, always the same ones; for all of"
                " them, give a larger sample."
            )

    def _advanced(self, steps: int) -> None:
        self._done += steps
        self._progress(self._what, self._done, self._total)

    def run(self) -> GaugeResult:
        try:
            if self._candidates:
                return self._alternate()
            return self._compare_runs()
        finally:
            self._kept.close()

    def _runner(self, setup: Setup, like: Sequence[int] | None = None) -> Runner:
        """What makes runs; one that is compared with another has its mini-batches, step by step."""
        return Runner(setup, self._advanced, self._sample, like)

    # -- one run that alternates ----------------------------------------------------------------------------------

    def _alternate(self) -> GaugeResult:
        """Take the run, and further ones within the budget while the answer is open."""
        candidates, floor = self._candidates, self._setup.floor
        seen, sights, limits = list[Any](), list[Sight](), dict[int, StepEfficiency]()
        entries: list[StepEfficiency] = []
        first: Track | None = None
        number = 0
        while True:
            self._what = f"{', '.join(map(str, candidates))} local steps"
            rounds = list(schedule(candidates, self._steps, turn=number))
            track = self._alternation(number, candidates, rounds, watched=first is None)
            self._tracks.append(track)
            if not track.complete:
                self._notes.append(f"The gauge was interrupted after {track.gradient_steps} steps of a run.")
                break
            if not math.isfinite(track.losses[-1]):
                diverging = rounds[track.rounds - 1]
                if diverging == 1:
                    raise InputError(
                        "f diverges with one local step per round at this rate; choose a smaller gamma or eta."
                    )
                self._notes.append(f"With {counted(diverging, 'local step')} per round, f diverges at this rate.")
                limits[diverging] = StepEfficiency.at_most(diverging, 0.1)
                candidates = tuple(each for each in candidates if each < diverging)
                if len(candidates) < 2:
                    break
                continue
            if min(track.losses) <= floor:
                lowest = f"{min(track.losses):.4g}"
                return self._compare_runs_instead(
                    f"f falls to {lowest}, and one run says something only where f stays above {floor:.4g}"
                )
            try:
                usable = self._usable(track, rounds, candidates, floor)
            except InputError:
                # Whether drift or training itself is why f does not fall, a run with one local step tells.
                return self._compare_runs_instead("f does not keep falling in a run that changes between them")
            seen.append((candidates, usable))
            first = first or track
            sights += track.sights
            entries, number = efficiencies(seen), number + 1
            if self._total - self._done < self._steps:
                break
            best = self._answer([*entries, *limits.values()]).best() if self._price is not None else None
            if best is not None and best.edge == "largest":
                candidates = self._further(candidates)
            elif best is not None and best.sure >= _SURE:
                break
        known = first or self._tracks[-1]
        found = sorted([*entries, *limits.values()], key=lambda each: each.local_steps)
        end = known.losses[-1] if self._goal is None else self._goal
        if seen and self._tracks[-1].complete and not limits:
            like = list(schedule(seen[0][0], self._steps))
            found = self._confirmed(found, reference_curve(seen[0][1], floor), end, like)
        cause = self._cause(found, sights) if first else None
        return self._result(found, known, end, cause, self._method_of_one(number, candidates))

    def _confirmed(
        self, found: list[StepEfficiency], curve: BaseCurve, end: float, like: Sequence[int]
    ) -> list[StepEfficiency]:
        """The efficiencies, some by runs of their own where the recommendation rests on them.

        Args:
            found: the efficiencies.
            curve: f along training with one local step per round, by the first run.
            end: the value of f at which a run ends.
            like: the local steps of the first run's rounds, whose mini-batches the others have.
        """
        price = self._price
        if price is None:
            return found

        def run(local_steps: int, rounds: int, every: int) -> Track:
            self._total += rounds * local_steps
            with self._runner(self._setup, like) as runner:
                return self._run(runner, end, local_steps, rounds, every, watched=False)

        confirmation = Confirmation(run, curve, end, self._steps, self._overlap)
        larger = self._options.local_steps is None
        found = confirmation.make(found, lambda entries: self._answer(entries).best(), price, larger)
        self._tracks += confirmation.tracks
        if confirmation.tried:
            tried = " and ".join(map(str, sorted(confirmation.tried)))
            self._notes.append(f"{tried} local steps had a run of their own, because the recommendation rests on them.")
        return found

    def _compare_runs_instead(self, why: str) -> GaugeResult:
        """Compare runs where one run does not tell."""
        self._notes.append(f"Each number of local steps got a run of its own, because {why}.")
        self._budget = self._options.budget or 2 * self._steps
        self._total = self._done + self._steps + self._budget
        return self._compare_runs()

    def _alternation(self, number: int, candidates: Sequence[int], rounds: list[int], watched: bool) -> Track:
        """The run with that number; further runs have the same first model and other mini-batches."""
        setup = self._setup
        if number:
            setup = replace(setup, start=setup.first_model, seed=(setup.seed + number * _APART) % 2**64)
        with self._runner(setup) as runner:
            return runner.follow(
                f"alternating-{number}-{'-'.join(map(str, candidates))}",
                rounds,
                max(self._steps // RECORDS, 1),
                goal=-math.inf if self._goal is None else self._goal,
                watched=first_of_late_blocks(rounds) if watched and setup.algorithm.sgd_rate is not None else (),
                kept=self._kept,
                middle=self._note_noise if watched else lambda model: None,
            )

    def _usable(self, track: Track, rounds: Sequence[int], candidates: Sequence[int], floor: float) -> Any:
        """The records up to where f stalls; a run in which f does not fall is refused."""
        curve = BaseCurve(*reference_records(track, rounds))
        check_base(curve, None if self._goal is None or track.losses[-1] <= self._goal else self._goal)
        seen, flat = observed(track, rounds, candidates, floor), stalled_at(curve)
        if flat is not None and self._goal is None:
            self._notes.append(
                f"After {flat} of the {self._steps} steps f falls by less than its noise, so the comparison ends there."
            )
            seen = until(seen, flat)
        return seen

    def _further(self, candidates: tuple[int, ...]) -> tuple[int, ...]:
        """The candidates with the next larger number, if a run is long enough for it."""
        larger = next((each for each in USUAL if each > candidates[-1]), None)
        wider = candidates if larger is None else (*candidates, larger)
        return wider if least_steps(wider, 1.0) <= self._steps else candidates

    def _method_of_one(self, runs: int, candidates: Sequence[int]) -> str:
        tried, steps = ", ".join(map(str, candidates)), f"{self._steps:,} steps of each worker"
        if runs < 2:
            return (
                f"Measured{self._rate} in one run of {steps}, which changed between {tried} local steps; every step"
                " trained the model."
            )
        return f"Measured{self._rate} in {runs} runs of {steps}, each of which changed between {tried} local steps."

    # -- a run for each number ------------------------------------------------------------------------------------

    def _compare_runs(self) -> GaugeResult:
        """Compare runs with more local steps with one that has one local step per round."""
        with ExitStack() as stack:
            self._what = "one local step"
            base = stack.enter_context(self._runner(replace(self._setup, algorithm=self._reference), like=()))
            goal = -math.inf if self._goal is None else self._goal
            track = base.follow(
                "one",
                [1] * self._steps,
                max(self._steps // RECORDS, 1),
                goal=goal,
                kept=self._kept,
                middle=self._note_noise,
            )
            self._tracks.append(track)
            if not track.complete:
                self._notes.append(f"The gauge was interrupted after {track.gradient_steps} steps of its base run.")
                return self._result([], track, track.losses[-1], None, "")
            curve, end = self._way(track)
            runner = base
            if self._is_other:
                stack.close()
                runner = stack.enter_context(self._runner(self._setup, like=()))
            runs = Runs(partial(self._run, runner, end), curve, end, self._budget, notes=self._notes)
            runs.make(self._options.local_steps)
            if not runs.complete:
                self._notes.append("The gauge was interrupted; it has what was measured before.")
        self._tracks += runs.tracks
        found = [each for _, each in sorted(runs.efficiencies.items())]
        self._notes += check_efficiencies(found, self._setup.algorithm, self._reference)
        cause = self._cause(found, runs.sights) if runs.complete else None
        tried = ", ".join(str(each.local_steps) for each in found)
        spent = sum(each.gradient_steps for each in self._tracks) / max(track.gradient_steps, 1)
        method = (
            f"Measured{self._rate} by comparing a run with one local step per round with runs with {tried}, for"
            f" {spent:.1f} times the steps of one run."
        )
        return self._result(found, track, end, cause, method, runs.phases, complete=runs.complete or bool(found))

    def _run(self, runner: Runner, goal: float, local_steps: int, rounds: int, every: int, watched: bool) -> Track:
        self._what = f"{local_steps} local steps"
        middle = {rounds // 2} if watched and rounds > 1 and self._setup.algorithm.sgd_rate is not None else set[int]()
        name = f"run-{local_steps}-{rounds}-shared"
        return runner.follow(name, [local_steps] * rounds, every, goal=goal, watched=middle, kept=self._kept)

    def _way(self, track: Track) -> tuple[BaseCurve, float]:
        """f along the base run up to where it stalls, and the value of f at which the comparison ends."""
        if not math.isfinite(track.losses[-1]):
            raise InputError("f diverges with one local step per round at this rate; choose a smaller gamma or eta.")
        curve = BaseCurve(track.steps, track.losses)
        goal = check_base(curve, self._goal)
        if self._goal is None and (flat := stalled_at(curve)) is not None:
            self._notes.append(
                f"After {flat} of the {track.steps[-1]} steps f falls by less than its noise, so the comparison ends"
                " there."
            )
            number = sum(each <= flat for each in track.steps)
            curve = BaseCurve(track.steps[:number], track.losses[:number])
            goal = check_base(curve, None)
        return curve, goal

    # -- what both have in common ---------------------------------------------------------------------------------

    @property
    def _rate(self) -> str:
        gamma = self._settings["algorithm"].get("gamma")
        return "" if gamma is None else f" at gamma {gamma:g}"

    def _note_noise(self, model: torch.Tensor) -> None:
        """Measure the variance of a stochastic gradient at this model, for the explanation."""
        self._variance = self._kept.once("sigma2", partial(self._sigma2, model))

    def _sigma2(self, model: torch.Tensor) -> Any:
        """The variance, averaged over workers; why it cannot be measured, if so: no explanation is worth an answer."""
        setup = self._setup
        federation, weights = setup.federation, setup.participation.weights
        # Where examples do not add up to a gradient (dropout, batch normalisation), whole gradients are drawn.
        samples = _SAMPLES if isinstance(federation, HasSampleNoise) and federation.averages_samples else None
        try:
            with Meter(federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
                drawn = noise(meter, model, samples=samples)
        except InputError as error:
            return str(error)
        return float(drawn.constants["sigma_rms"].value) ** 2

    def _cause(self, found: Sequence[StepEfficiency], sights: Sequence[Sight]) -> Cause | None:
        """Why local steps are lost, if it was observed."""
        sigma2 = self._variance if self._variance is not None else self._kept.read("sigma2")
        if not sights or sigma2 is None:
            return None
        if isinstance(sigma2, str):
            self._notes.append(
                f"Why local steps are lost cannot be said, because sigma cannot be measured here: {sigma2}"
            )
            return None
        return explained(self._setup, found, sights, sigma2)

    def _answer(
        self,
        found: Sequence[StepEfficiency],
        method: str = "",
        phases: Any = (),
        complete: bool = True,
    ) -> Answer:
        ordered = sorted(found, key=lambda each: each.local_steps)
        first = StepEfficiency(1, 1.0, 1.0, 1.0, measured=False)
        notes = tuple(dict.fromkeys(self._notes))
        known = complete and bool(ordered)
        entries = (first, *ordered)
        return Answer(
            entries, _SYNCHRONOUS, self._price, None, method, tuple(phases), notes, known, overlap=self._overlap
        )

    @property
    def _overlap(self) -> float:
        return 0.0 if self._cost is None else self._cost.overlap

    def _result(
        self,
        found: Sequence[StepEfficiency],
        track: Track,
        goal: float,
        cause: Cause | None,
        method: str,
        phases: Any = (),
        complete: bool = True,
    ) -> GaugeResult:
        runs: list[Track | RateSearch] = [*self._tracks, *([self._search] if self._search else [])]
        numbers = ((each.gradient_steps, each.rounds, each.passes) for each in runs)
        return GaugeResult(
            answer=self._answer(found, method, phases, complete),
            settings=self._settings,
            goal=goal,
            steps=track.steps,
            losses=track.losses,
            spent=Spent(*(sum(column) for column in zip(*numbers, strict=True))),
            cost=self._cost,
            participants=self._setup.participation.num_participants(self._setup.num_workers),
            cause=cause,
            base=described(self._reference) if self._is_other else None,
            rate=self._search,
        )


MEANING = "What share of the local steps counts around this model, measured directly."


def gauge_reading(setup: Setup, progress: Progress = silent) -> Reading:
    """Gauge around the set-up's first model, with its own number of local steps."""
    steps = setup.fixed_steps
    if not isinstance(steps, int):
        raise InputError("The gauge needs the same number of local steps for all workers; give local_steps as one.")
    if steps == 1:
        note = "With one local step per round, every step counts by definition."
        return Reading("gauge", MEANING, notes=(note,))
    found = gauge(setup, options=GaugeOptions(local_steps=(steps,), around=True), progress=progress)
    last, details = found.efficiency[-1], found.to_json()
    if last.limit or not last.measured:
        note = f"Of {steps} local steps, {last.share if last.limit else 'an unknown share'} count."
        return Reading("gauge", MEANING, details=details, notes=(note, *found.notes))
    cost = {"gradient steps": float(found.spent.gradient_steps)}
    method = f"blocks of 1 and of {steps} local steps from the model on"
    E = Estimate("E", last.value, last.low, last.high, "sample", method, cost=cost)
    return Reading("gauge", MEANING, (E,), details, found.notes)
