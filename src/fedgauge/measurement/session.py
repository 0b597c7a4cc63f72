"""All readings of a federation at one model, within a budget; when the budget ends, the finished readings are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError, count, nearest
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.base.user_code import READINGS as ADDED
from fedgauge.base.user_code import plugins, remedy
from fedgauge.federation.identity import check_model
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation, HasStatistics
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.decomposition import decompose
from fedgauge.measurement.divergence import divergence
from fedgauge.measurement.gauge.gauge import gauge_reading
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter, OutOfBudgetError, why_ended
from fedgauge.measurement.proofs import certified, is_certain, without_proof
from fedgauge.measurement.sampled import sampled_deviation, sampled_divergence
from fedgauge.measurement.trajectory import near_convergence, trajectory
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import setup_of
from fedgauge.simulation.options import Compute
from fedgauge.simulation.runs.checkpoints import Given, given_model
from fedgauge.simulation.setup import Setup
from fedgauge.values import Observer, Round


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure, and how.

    Attributes:
        readings: the names of the readings, in order. By default, the usual ones, and ``certified`` if possible.
        rounds: the number of rounds of the trajectory from the model.
        seeds: the number of runs of the trajectory, each with its own seed.
        fall: training counts as near convergence when the loss falls by less than this fraction in ten rounds.
        most: the largest number of rounds of training.
        tolerance: the tolerance for the directions of the curvature.
        part: the fraction of every worker's data that the ``sampled`` readings use.
        seconds: the budget in seconds; None means no limit.
        passes: the budget in passes over the data; None means no limit.
    """

    readings: tuple[str, ...] = ()
    rounds: int = 10
    seeds: int = 3
    fall: float = 0.01
    most: int = 1000
    tolerance: float | None = None
    part: float = 0.05
    seconds: float | None = None
    passes: float | None = None

    def __post_init__(self) -> None:
        for name in self.readings:
            if name not in readings():
                missing = remedy(f"reading {name}")
                if missing:
                    raise InputError(f"The reading {name!r} comes with another package; {missing}")
                raise InputError(f"There is no reading {name!r}; {nearest(name, readings())}")
        for name in ("rounds", "seeds", "most"):
            count(name, getattr(self, name))
        if not 0 < self.fall < 1:
            raise InputError(f"fall must be between 0 and 1, not {self.fall!r}.")
        if not 0 < self.part <= 1:
            raise InputError(f"part must be above 0 and at most 1, not {self.part!r}.")
        for name in ("seconds", "passes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"The budget must be above 0 {name}, not {value!r}.")


@dataclass
class Session:
    """The state that the readings share while they are taken."""

    setup: Setup
    options: MeasureOptions
    model: torch.Tensor
    meter: Meter
    progress: Progress
    until: float
    taken: list[Reading] = field(default_factory=list)

    def time_is_up(self, _: Sequence[Round] = ()) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() > self.until

    @property
    def local_steps(self) -> LocalSteps | None:
        """The local steps, if all workers take the same number."""
        steps = self.setup.fixed_steps
        return LocalSteps(self.setup.algorithm, steps) if isinstance(steps, int) else None

    def observer(self, what: str, total: int) -> Observer:
        """An observer of ``simulate`` that reports its rounds as progress."""
        return lambda done, _: self.progress(what, done, total)


def _default(federation: Federation) -> tuple[str, ...]:
    """The readings that are taken by default."""
    return ("certified", *USUAL) if is_certain(federation) else USUAL


def _trajectory(session: Session) -> Iterable[Reading]:
    setup, options = session.setup, session.options
    before = latest = 0

    def observer(rounds: int, record: Round | None) -> None:
        nonlocal before, latest
        if rounds < latest:  # the next seed's run has begun
            before += latest
        latest = rounds
        session.progress("trajectory", before + rounds, options.rounds * options.seeds)

    mean, most = trajectory(
        setup.federation,
        setup.algorithm,
        session.model,
        local_steps=setup.fixed_steps,
        rounds=options.rounds,
        seeds=[setup.seed + number for number in range(options.seeds)],
        weights=setup.participation.weights,
        compute=setup.compute,
        stop=session.time_is_up,
        observer=observer,
    )
    session.meter.cost["gradient passes"] += int(mean.estimates[0].cost["gradient passes"]) if mean.estimates else 0
    yield mean
    yield most


def _curvature(session: Session) -> Iterable[Reading]:
    yield curvature(session.meter, session.model, session.options.tolerance)


def _divergence(session: Session) -> Iterable[Reading]:
    yield divergence(session.meter, session.model, iterates=session.local_steps)


def _noise(session: Session) -> Iterable[Reading]:
    yield noise(session.meter, session.model)


def _sampled(session: Session) -> Iterable[Reading]:
    """Readings from random parts of the data, for when a pass over all of it takes too long."""
    part = session.options.part
    yield sampled_divergence(session.meter, session.model, size=part)
    if session.local_steps:
        yield sampled_deviation(session.meter, session.model, session.local_steps, size=part)


def _parts(session: Session) -> Iterable[Reading]:
    """Where zeta and L_h come from; the direction of L_h is that of the curvature reading, if it was taken."""
    curved = next((reading for reading in session.taken if "L_h" in reading.directions), None)
    direction = curved.directions["L_h"] if curved else None
    decomposition = decompose(session.meter, session.model, direction, session.options.tolerance)
    meaning = "Where zeta and L_h at this model come from: which workers, which parameters."
    notes = [
        f"{part.symbol}: {_named(part.outliers)} out (median + 3 robust deviations is {part.threshold:.3g})."
        for part in decomposition.parts
        if part.outliers
    ]
    yield Reading("parts", meaning, details=decomposition.to_json(), notes=tuple(notes))


def _named(workers: Sequence[int]) -> str:
    return f"worker {workers[0]} stands" if len(workers) == 1 else f"workers {', '.join(map(str, workers))} stand"


def _gauge(session: Session) -> Iterable[Reading]:
    around = replace(session.setup, start=session.model)
    yield gauge_reading(around, lambda what, done, total: session.progress("gauge", done, total))


READINGS: Mapping[str, Callable[[Session], Iterable[Reading]]] = {
    "certified": certified,
    "trajectory": _trajectory,
    "curvature": _curvature,
    "divergence": _divergence,
    "noise": _noise,
    "parts": _parts,
    "sampled": _sampled,
    "gauge": _gauge,
}


def readings() -> Mapping[str, Callable[[Session], Iterable[Reading]]]:
    """All readings: those above, and what the installed packages add under their entries' names."""
    return {**plugins(ADDED), **READINGS}


USUAL = ("divergence", "noise", "trajectory", "curvature", "parts")
"""The usual readings, cheap ones first, so that a small budget or Ctrl-C still leaves most of them."""


@undisturbed
def measure(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None = None,
    *,
    local_steps: int | Sequence[int] | None = None,
    participation: Participation | int | None = None,
    seed: int | None = None,
    compute: Compute | None = None,
    model: Given | None = None,
    origin: str = "given",
    options: MeasureOptions | None = None,
    progress: ProgressOption = "auto",
    keep: Callable[[Measurement], None] = lambda measurement: None,
) -> Measurement:
    """Measure the constants of a federation.

    Args:
        source: a federation; or an experiment, which determines all arguments up to ``compute``.
        algorithm: the algorithm whose trajectory is measured.
        local_steps: the number I of local steps, or one number per worker; 10 by default.
        participation: the workers' weights; all workers take part while constants are measured.
        seed: the seed of all randomness.
        compute: where to compute: this process, several processes or a cluster.
        model: the model at which to measure: a flat tensor, a module, its ``state_dict``, or the name of a file or run;
            by default, one that is trained until near convergence.
        origin: a description of where that model comes from, for the record.
        options: which readings to take, and how much they may cost.
        progress: a function that is called with what is being done and how far it is. By default, a bar is shown on a
            terminal and in a notebook; None shows nothing.
        keep: a function that is called after every reading with all readings so far, to save them at once.

    Returns:
        The readings that were taken. If the budget ends or Ctrl-C is pressed, some are missing, and ``complete`` is
        false.

    >>> from fedgauge import fedavg, random_quadratics
    >>> options = MeasureOptions(("trajectory", "curvature"), rounds=2, seeds=2, fall=0.2)
    >>> measured = measure(random_quadratics(4, 3), fedavg(gamma=0.1), local_steps=5, options=options)
    >>> happened, possible = (measured.reading(name).constants["L_h"].value for name in ("trajectory", "curvature"))
    >>> happened < possible, measured.complete
    (True, True)
    """
    setup = setup_of(
        source, algorithm, local_steps=local_steps, participation=participation, seed=seed, compute=compute
    )
    with reported(progress) as tell:
        return _measured(setup, model, origin, options or MeasureOptions(), tell, keep)


def _measured(
    setup: Setup,
    model: Given | None,
    origin: str,
    options: MeasureOptions,
    progress: Progress,
    keep: Callable[[Measurement], None],
) -> Measurement:
    """Take the readings, one after the other."""
    steps = setup.fixed_steps  # raises an error for adaptive local steps, before anything is computed
    digest, began = setup.federation.digest, time.monotonic()
    at = None if model is None else given_model(setup.federation, model)
    setup, at = _with_fixed_statistics(setup, at)
    federation = setup.federation
    remarks = [*getattr(federation, "remarks", ()), *([] if options.readings else without_proof(setup))]
    options = replace(options, readings=options.readings or _default(federation))
    until = began + (float("inf") if options.seconds is None else options.seconds)
    point: dict[str, Any] = {"origin": origin}
    meter = Meter(
        federation,
        weights=setup.participation.weights,
        seed=setup.seed,
        compute=setup.compute,
        until=until,
        passes=options.passes,
        progress=lambda what, done: progress(what, int(done), None),
    )
    settings: dict[str, Any] = {"experiment": dict(setup.experiment), "asked": _plain(options)}
    settings |= {"federation": digest, "workers": federation.num_workers}
    if setup.participation.shares is not None:
        settings["weights"] = list(setup.participation.shares)
    if not setup.experiment:
        settings["algorithm"] = {"name": setup.algorithm.name, **setup.algorithm.parameters}
        settings["local_steps"] = steps

    def measurement(complete: bool) -> Measurement:
        cost = {**meter.cost, "seconds": time.monotonic() - began}
        return Measurement(settings, point, tuple(session.taken), complete, cost)

    with meter:
        session = Session(setup, options, setup.first_model, meter, progress, until)
        if at is None:
            session.model, point = _train(session)
        else:
            session.model = check_model(federation, at)
        complete = _take(session, point, remarks, lambda: keep(measurement(complete=False)))
    return measurement(complete)


def _with_fixed_statistics(setup: Setup, model: torch.Tensor | None) -> tuple[Setup, torch.Tensor | None]:
    """The set-up in which averaged statistics are those of the model, and the model without them."""
    federation = setup.federation
    if not (isinstance(federation, HasStatistics) and federation.statistics):
        return setup, model
    if model is None:
        raise InputError(
            "Measuring keeps BatchNorm's averaged statistics as they are in one model, so it has to be given; measure a"
            " saved run, or pass model=trace.model as a tensor."
        )
    fixed = federation.with_statistics_of(model)
    return replace(setup, federation=fixed, start=None), model[: federation.num_trained]


def _train(session: Session) -> tuple[torch.Tensor, dict[str, Any]]:
    setup, options = session.setup, session.options
    model, how = near_convergence(
        setup.federation,
        setup.algorithm,
        local_steps=setup.fixed_steps,
        fall=options.fall,
        most=options.most,
        seed=setup.seed,
        weights=setup.participation.weights,
        compute=setup.compute,
        stop=session.time_is_up,
        observer=session.observer("training", options.most),
    )
    reached, rounds = how["reached"], how["round"]
    origin = "trained until near convergence" if reached else f"after {rounds} rounds, not near convergence"
    return model, {"origin": origin, **how}


def _take(session: Session, point: dict[str, Any], remarks: Sequence[str], keep: Callable[[], None]) -> bool:
    """Take the readings one after another, each kept as soon as it is done; return whether all were taken."""
    try:
        loss, gradient = session.meter.evaluate(session.model)
    except OutOfBudgetError:
        raise InputError(
            "The budget is used up before one pass over the data; allow more, or name the model to measure at."
        ) from None
    point |= {"loss": loss, "grad2": float(gradient @ gradient)}
    if remarks:
        point["remarks"] = list(remarks)
    if not torch.isfinite(gradient).all():
        raise InputError("The loss is not finite at this model: it has diverged; measure an earlier one.")
    failures = []
    try:
        for name in session.options.readings:
            try:
                for reading in readings()[name](session):
                    session.taken.append(reading)
                    if not reading.complete:
                        return False
                    keep()
            except InputError as error:
                # If one reading fails, others may still succeed.
                failures.append(error)
                session.taken.append(Reading(name, "Could not be taken.", notes=(str(error),)))
    except (OutOfBudgetError, KeyboardInterrupt) as reason:
        taken = ", ".join(reading.name for reading in session.taken)
        note = f"Not measured: {name}; {why_ended(reason)}."
        session.taken.append(Reading(name, "Not taken.", notes=(note,), complete=False))
        if not taken and isinstance(reason, KeyboardInterrupt):
            raise
        return False
    if failures and len(failures) == len(session.options.readings):
        raise failures[0]
    return True


def _plain(options: MeasureOptions) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(options).items()}
