"""What a report shows beyond the files that it reads: who holds which labels, and the theorem that covers the run.

All of it is computed here, before anything is rendered, and handed to the report as values.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedgauge.base.errors import InputError, MachineError
from fedgauge.show.results.reading import RUN, FoundResults
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.theory.comparison import Comparison, compare
from fedgauge.values import Constants, Estimate

if TYPE_CHECKING:
    import torch

    from fedgauge.federation.protocols import Federation
    from fedgauge.federation.quadratic import QuadraticFederation

_REGRESSION = ("softmax", "linear")
"""The models whose f* can be proved."""


@dataclass(frozen=True)
class LabelCounts:
    """How many examples of each label every worker has: one row per worker, one column per label."""

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    scheme: str


@dataclass(frozen=True)
class Background:
    """What was worked out about some results.

    Attributes:
        experiment: the experiment behind them, where they have one.
        labels: how its data is divided.
        num_workers: N, where it is known.
        comparison: the theorem beside the run.
        notes: what could not be worked out, and why.
    """

    experiment: Experiment | None = None
    labels: LabelCounts | None = None
    num_workers: int | None = None
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()


def background_of(results: FoundResults) -> Background:
    """Work out the experiment, how its data is divided, and the theorem that covers the run."""
    experiment = _experiment(results)
    labels, workers = None, None
    notes: list[str] = []
    if experiment is not None:
        try:
            if experiment.data.is_quadratic:
                workers = _quadratics(experiment, results.run).num_workers
            else:
                labels, workers = _share_out(experiment)
        except (InputError, MachineError) as error:
            notes.append(f"What the workers hold cannot be shown: {error}")
    if workers is None and results.measurement:  # which is of the same federation, or it would have been refused
        workers = results.measurement.settings.get("workers")
    comparison = None
    constants = results.measurement.constants if results.measurement else None
    if results.run and constants:
        try:
            run = results.run
            if results.measurement and results.measurement.settings.get("weights") is not None:
                raise InputError(
                    "The constants were measured with unequal weights of the workers, for which no report"
                    " evaluates the theorems; measure with equal weights."
                )
            comparison = compare(run, constants, workers, lambda known: _gap(experiment, run, known, notes))
        except InputError as error:
            notes.append(f"There is no bound to set beside the run: {error}")
    return Background(experiment, labels, workers, comparison, tuple(notes))


def _experiment(results: FoundResults) -> Experiment | None:
    """The experiment that was run, or else the one behind the first result that has one."""
    for kind in results.kinds:
        found = results.by_kind[kind]
        data = found.experiment if kind == RUN else found.origin.experiment
        if data:
            try:
                return Experiment.from_json(data)
            except InputError as error:
                where = f"{results.path}: experiment.toml" if kind == RUN else f"The {kind}"
                raise InputError(f"{where} does not fit this version of fedgauge: {error}") from None
    return None


def _quadratics(experiment: Experiment, run: FoundRun | None) -> QuadraticFederation:
    """The federation of a file, if it is still the one that was run."""
    from fedgauge.federation.quadratic import QuadraticFederation

    federation = QuadraticFederation.read(experiment.data.name)
    if run and run.settings.get("federation") not in (None, federation.digest):
        raise InputError(f"{experiment.data.name} has changed since the run.")
    return federation


def _gap(experiment: Experiment | None, run: FoundRun, known: Constants, notes: list[str]) -> Estimate | None:
    """F of a run, proved for its first model: always for quadratics, and from a proved f* for regression."""
    least = known.get("f_star")
    if experiment is None:
        return None
    try:
        if experiment.data.is_quadratic:
            federation = _quadratics(experiment, run)
            return federation.constants_at(_start(run, federation).numpy())["F"]
        # A model of one's own is not imported to write a report.
        if experiment.model.name in _REGRESSION and least and least.scope and least.kind in ("exact", "lower"):
            return _gap_of_regression(experiment, run, least, notes)
    except (InputError, MachineError):
        pass
    return None


def _gap_of_regression(experiment: Experiment, run: FoundRun, least: Estimate, notes: list[str]) -> Estimate | None:
    from fedgauge.measurement.proofs import UNPROVED, prover
    from fedgauge.simulation.experiment.prepare import prepare

    prove = prover()
    if prove is None:
        notes.append(UNPROVED)
        return None
    federation = prepare(experiment).federation
    if federation.digest != run.settings.get("federation"):
        return None
    return prove.gap_at(federation, _start(run, federation), least)


def _start(run: FoundRun, federation: Federation) -> torch.Tensor:
    """The first model of a run."""
    from fedgauge.federation.identity import digest_of
    from fedgauge.simulation.runs.checkpoints import read_model

    if "start" not in run.settings:
        return federation.start(int(run.settings["seed"]))
    model = read_model(Path(run.path) / "start.safetensors", federation)
    if digest_of(model) != run.settings["start"]:
        raise InputError(f"{run.path}/start.safetensors is not the model with which the run began.")
    return model


def _share_out(experiment: Experiment) -> tuple[LabelCounts, int]:
    """The labels of every worker, if the data is on this machine; nothing is downloaded."""
    from fedgauge.simulation.experiment.prepare import share_out

    if experiment.data.is_user_code:
        raise InputError(f"{experiment.data.name} is a function of your own, which is not called to write a report.")
    dataset, partition = share_out(experiment)
    labels, names = dataset.counted()
    counts = partition.label_counts(labels, len(names))
    classes = list(names)
    classes += [str(number) for number in range(len(classes), counts.shape[1])]
    rows = tuple(tuple(row) for row in counts.tolist())
    return LabelCounts(tuple(classes), rows, partition.scheme), partition.num_workers
