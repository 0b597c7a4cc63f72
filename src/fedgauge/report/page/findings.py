"""What a report is about: a run, a measurement, a plan or a sweep, each as it is found on disk, read and checked."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedgauge.errors import InputError, MachineError
from fedgauge.experiment.config import Experiment
from fedgauge.measurement.reading import Measurement
from fedgauge.planning.plan import Plan
from fedgauge.planning.theory_plan import TheoryPlan
from fedgauge.report.page.comparison import Comparison, compare
from fedgauge.report.page.shapes import (
    Asked,
    Certified,
    Figure,
    Ledger,
    Part,
    PartsDetails,
    SweepResult,
    Table1,
    Table2,
)
from fedgauge.runs.reader import FoundRun, look, source_of
from fedgauge.values import Round, Value

# What tells the kinds of JSON file apart, and how each is made.
_MARKS = {
    "measurement": ("readings", "point"),
    "plan": ("race", "space"),
    "sweep": ("combinations", "over"),
    "certified": ("constants",),
    "theory": ("sensitivity", "prior_curve"),
    "figure": ("studies",),
    "table1": ("paper",),
    "table2": ("columns",),
    "ledger": ("claims",),
}
_KINDS: dict[str, type[Value]] = {
    "measurement": Measurement,
    "plan": Plan,
    "sweep": SweepResult,
    "certified": Certified,
    "theory": TheoryPlan,
    "figure": Figure,
    "table1": Table1,
    "table2": Table2,
    "ledger": Ledger,
}
# What has no page, and what tells it.
_DRAWN = {
    "reproduce fig1": {"panels"},
    "reproduce sampling": {"settings", "lines"},
    "reproduce lenses": {"orders", "cells"},
    "falsify": {"rows", "cases"},
}
_NEEDED = ("algorithm", "local_steps", "rounds", "participation", "seed")


@dataclass(frozen=True)
class Shares:
    """Who has how much of what: one row a worker, one column a label."""

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    scheme: str


@dataclass(frozen=True)
class Findings:
    """All that a report shows.

    Attributes:
        path: what was named.
        run: the run, as far as it goes.
        measurement: the constants.
        plan: the plan.
        sweep: the result of a sweep.
        certified: a table of certified bounds beside runs.
        theory: a plan by theory alone.
        figure: one of the paper's, run again.
        table1: the paper's constants beside ours.
        table2: its rounds on quadratics beside ours.
        ledger: its claims beside what we found.
        experiment: that stands behind them.
        shares: how the data is shared out.
        num_workers: where it is known.
        comparison: the theorem beside the run.
        notes: what could not be shown, and why.
    """

    path: str
    run: FoundRun | None = None
    measurement: Measurement | None = None
    plan: Plan | None = None
    sweep: SweepResult | None = None
    certified: Certified | None = None
    theory: TheoryPlan | None = None
    figure: Figure | None = None
    table1: Table1 | None = None
    table2: Table2 | None = None
    ledger: Ledger | None = None
    experiment: Experiment | None = None
    shares: Shares | None = None
    num_workers: int | None = None
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()


def find(path: Path, measure: Path | None = None, plan: Path | None = None) -> Findings:
    """Read what is at a path, and the files that are named beside it.

    Args:
        path: the directory of a run, a measurement, a plan or a sweep, or one of their JSON files.
        measure: a measurement's JSON file.
        plan: a plan's JSON file.
    """
    found = _in_directory(path) if path.is_dir() else _in_file(path)
    if measure:
        found = replace(found, measurement=_expect("measurement", measure, _read(measure)))
    if plan:
        data = _read(plan)
        kind = "theory" if any(mark in data for mark in _MARKS["theory"]) else "plan"
        found = replace(found, **{kind: _expect(kind, plan, data)})
    _check_same(found)
    return _behind(found)


# -- files -------------------------------------------------------------------------------------------------------


def _in_directory(path: Path) -> Findings:
    found = Findings(str(path))
    if (path / "settings.json").is_file():
        found = replace(found, run=_run(path))
    for name in ("measure.json", "plan.json", "theory.json"):
        if (path / name).is_file():
            found = _with(found, path / name)
    for name in ("result.json", "digits.json", "mnist.json", "ledger.json") if found.run is None else ():
        if (path / name).is_file():
            found = _with(found, path / name)
    if found == Findings(str(path)):
        raise InputError(
            f"{path} holds nothing to report: none of settings.json (a run), measure.json, plan.json, theory.json,"
            " ledger.json and the result.json of a sweep, a figure or a table; name a directory that holds one."
        )
    return found


def _in_file(path: Path) -> Findings:
    return _with(Findings(str(path)), path)


def _with(found: Findings, path: Path) -> Findings:
    data = _read(path)
    kind = next((kind for kind, marks in _MARKS.items() if any(mark in data for mark in marks)), None)
    drawn = next((name for name, marks in _DRAWN.items() if marks <= set(data)), None)
    if kind is None and drawn:
        raise InputError(f"{path} is the result of '{drawn}', which has no page; its command has shown and drawn it.")
    if kind is None:
        held = ", ".join(list(data)[:4]) or "nothing"
        raise InputError(
            f"{path} is neither a measurement nor a plan nor the result of a sweep, a figure, a table, certified bounds"
            f" or a ledger (it holds {held}); name what 'fedgauge measure', 'plan', 'sweep' or 'reproduce' wrote."
        )
    return replace(found, **{kind: _expect(kind, path, data)})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a run's directory or a JSON file.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not valid JSON; write it anew.") from None
    if not isinstance(data, Mapping):
        raise InputError(f"{path} must hold a JSON object; name what fedgauge wrote.")
    return data


def _expect(kind: str, path: Path, data: Mapping[str, Any]) -> Any:
    """The value that a file holds, or one sentence that names what does not fit."""
    try:
        made = _KINDS[kind].from_json(data)
        if isinstance(made, Measurement):
            parts_of(made)
        elif isinstance(made, Plan):
            _check_plan(made)
        elif isinstance(made, TheoryPlan):
            _check_theory(made)
    except InputError as error:
        raise InputError(_misfit(path, error)) from None
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # deep inside what a value holds
        raise InputError(_misfit(path, f"{type(error).__name__} {error}")) from None
    return made


def _misfit(path: Path, told: object, remedy: str = "write it anew with this version") -> str:
    return f"{path} does not fit this version of fedgauge: {str(told).rstrip('.?')}; {remedy}."


def parts_of(measurement: Measurement) -> tuple[Part, ...]:
    """Where the constants come from, where that was measured."""
    reading = measurement.reading("parts")
    return PartsDetails.from_json(reading.details).parts if reading and reading.details else ()


def _check_plan(plan: Plan) -> None:
    """What a plan derives from its parts, it must be able to derive."""
    if plan.choice.I not in [terms.I for terms in plan.terms]:
        raise InputError("Plan.terms must have those of the choice.")
    if plan.choice not in [entry.candidate for entry in plan.race.entries]:
        raise InputError("Plan.race.entries must have the choice among them.")
    _ = plan.verdict, plan.why, plan.toml
    if plan.theory:
        _check_theory(plan.theory)


def _check_theory(theory: TheoryPlan) -> None:
    _ = theory.verdict, theory.practice and theory.practice.words
    names = theory.answer.bound.terms
    if any(len(point.terms) != len(names) for point in theory.curve):
        raise InputError(f"A point of the theory's curve must have {len(names)} terms.")


def _run(path: Path) -> FoundRun:
    """The run as far as it goes; one that was written by another version is refused, not shown in part."""
    from fedgauge.simulation.loop import simulate

    run = look(path)
    where, known = path / "settings.json", inspect.signature(simulate).parameters
    if not run.settings:
        raise InputError(f"{where} is damaged; the run cannot be told from it.")
    for name in run.settings:
        if name not in known:
            raise InputError(_misfit(where, f"it has the unknown setting {name!r}", "run it anew"))
    try:
        Asked.from_json({name: run.settings[name] for name in _NEEDED if name in run.settings})
    except InputError as error:
        raise InputError(_misfit(where, error, "run it anew")) from None
    _check_records(path / "rounds.jsonl", len(run.rounds))
    return run


def _check_records(path: Path, sound: int) -> None:
    """A line that was cut short is where the run broke off; a whole one that does not fit is another version's."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        data = json.loads(lines[sound]) if sound < len(lines) else None
    except (OSError, ValueError):
        return
    if data is None:
        return
    try:
        Round.from_json(data)
    except InputError as error:
        raise InputError(_misfit(path, error, "run it anew")) from None


def _check_same(found: Findings) -> None:
    """Refuse constants and plans of one federation beside a run on another."""
    if found.run and found.plan and found.run.experiment:
        # A file may have been named from another place.
        mine, planned = (Path(source_of(held)).name for held in (found.run.experiment, found.plan.experiment))
        if mine != planned:
            raise InputError(
                f"The plan is for {planned}, and the run in {found.run.path} is of {mine}; name a plan for the same."
            )
    if found.run is None or found.measurement is None:
        return
    run, measured = found.run.settings.get("federation"), found.measurement.settings.get("federation")
    if run and measured and run != measured:
        raise InputError(
            f"The measurement is of another federation than the run in {found.run.path}; measure this one with"
            f" 'fedgauge measure {found.run.path} --out DIR'."
        )


# -- what stands behind it ---------------------------------------------------------------------------------------


def _behind(found: Findings) -> Findings:
    """Add the experiment, how its data is shared out, and the theorem that covers the run."""
    experiment = _experiment(found)
    shares, workers, least, notes = None, None, None, []
    if experiment is not None:
        try:
            if experiment.data.is_quadratic:
                workers, least = _quadratics(experiment, found.run)
            else:
                shares, workers = _shared_out(experiment)
        except (InputError, MachineError) as error:
            notes.append(f"What the workers hold cannot be shown: {error}")
    comparison = None
    # A plan's constants are of its experiment, which need not be the run's.
    constants = found.measurement.constants if found.measurement else None
    if found.run and constants:
        try:
            comparison = compare(found.run, constants, workers, least)
        except InputError as error:
            notes.append(f"No bound stands beside the run: {error}")
    return replace(
        found,
        experiment=experiment,
        shares=shares,
        num_workers=workers,
        comparison=comparison,
        notes=tuple(notes),
    )


def _experiment(found: Findings) -> Experiment | None:
    """What was run, measured or planned, in that order."""
    sources: list[tuple[str, Mapping[str, Any] | None]] = [
        (f"{found.path}: experiment.toml", found.run.experiment if found.run else None),
        ("The measurement", found.measurement.settings.get("experiment") if found.measurement else None),
        ("The plan", found.plan.experiment if found.plan else None),
        (found.path, found.sweep.experiment if found.sweep else None),
    ]
    for name, data in sources:
        if data:
            try:
                return Experiment.from_json(data)
            except InputError as error:
                raise InputError(f"{name} does not fit this version of fedgauge: {error}") from None
    return None


def _quadratics(experiment: Experiment, run: FoundRun | None) -> tuple[int, float | None]:
    """The number of workers and f*, from the file where it is still the one that was run."""
    from fedgauge.federation.quadratic import QuadraticFederation

    federation = QuadraticFederation.read(experiment.data.name)
    if run and run.settings.get("federation") not in (None, federation.digest):
        raise InputError(f"{experiment.data.name} is not the file any more that was run.")
    try:
        return federation.num_workers, float(federation.minimiser()[1])
    except InputError:  # unbounded below
        return federation.num_workers, None


def _shared_out(experiment: Experiment) -> tuple[Shares, int]:
    """The labels of every worker, from the data where that is here; nothing is downloaded."""
    from fedgauge.experiment.prepare import share_out

    dataset, partition = share_out(experiment)
    counts = partition.label_counts(dataset.train_labels, dataset.num_classes)
    classes = [str(name) for name in dataset.classes]
    classes += [str(number) for number in range(len(classes), counts.shape[1])]
    rows = tuple(tuple(row) for row in counts.tolist())
    return Shares(tuple(classes), rows, partition.scheme), partition.num_workers
