"""What a report says of a run: what happened, whom it serves, its federation and settings, and how to make it again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.show.page.section import Heading, ReportInput, Section, answer, shown
from fedgauge.show.views.answers import view_of_answer
from fedgauge.show.views.bounds import worth
from fedgauge.show.views.partitions import labels_chart
from fedgauge.show.views.runs import course_of, outcome
from fedgauge.show.views.view import Cell, IntervalCell, View
from fedgauge.show.web.elements import CellValue
from fedgauge.simulation.runs.reader import FoundRun, answer_of

# -- what happened -----------------------------------------------------------------------------------------------------


def _rounds_view(given: ReportInput) -> View | None:
    run = given.results.run
    if run is None or not run.rounds:
        return None
    # The numbers of the rounds are below the charts; the notes are at the beginning of the page, or in its settings.
    shown = course_of(run)
    return replace(shown, tables=shown.tables[1:], notes=())


# -- what a report on a run says at its beginning and its end --------------------------------------------------------


def _run(given: ReportInput) -> FoundRun:
    assert given.results.run is not None
    return given.results.run


def _steps(held: Any) -> Any:
    """The local steps of a run for a reader."""
    if held is None:
        return "unknown"
    if isinstance(held, Mapping):
        return held.get("name", "auto")
    return f"{min(held)} to {max(held)}, one number per worker" if isinstance(held, list) else held


def _rounds_card(given: ReportInput) -> View | None:
    """What a live gauge has learned in the run, if there was one."""
    answer = answer_of(_run(given).settings, _run(given).rounds)
    return view_of_answer(answer) if answer else None


def _rounds_summary(given: ReportInput) -> str:
    """What was run, and the theorem about it."""
    what, comparison = _what(_run(given)), given.background.comparison
    return f"{what}. {worth(comparison)}" if comparison else f"{what}."


def _says(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else value if isinstance(value, str) else f"{value:g}"


def _what(run: FoundRun) -> str:
    """The algorithm, its rates and where it ran, and from how many examples f was computed if not from all."""
    algorithm, last = dict(run.settings["algorithm"]), run.last
    name = algorithm.pop("name", "–")
    rates = ", ".join(f"{key} = {_word(algorithm[key])}" for key in ("gamma", "eta") if _says(algorithm.get(key)))
    what = f"{name} with I = {_steps(run.settings['local_steps'])}" + (f", {rates}" if rates else "")
    where = f" on {run.source}" if run.source != "–" else ""
    if last is None or last.sample is None:
        return f"{what}{where}"
    error = "" if last.loss_error is None else f" (± {last.loss_error:.2g})"
    return f"{what}{where}; f{error} is from a sample of {last.sample:,} examples"


def _rounds_settings(given: ReportInput) -> Mapping[str, CellValue]:
    run = _run(given)
    settings = run.settings
    algorithm, participation = dict(settings["algorithm"]), settings["participation"]
    targets = ("target_loss", "target_accuracy", "target_grad2", "target_records")
    return {
        "algorithm": str(algorithm.pop("name", "–")),
        **{key: _word(value) if isinstance(value, bool) else value for key, value in algorithm.items()},
        "local steps I": _steps(settings["local_steps"]),
        "rounds R": settings["rounds"],
        "recorded every": settings.get("record_every"),
        "examples per worker in a record": settings.get("record_sample"),
        "participation": str(participation.get("sampling", "full")),
        "participants M": participation.get("participants"),
        "seed": settings["seed"],
        **{name.replace("_", " "): settings.get(name) for name in targets},
        "status": f"{run.status}, round {run.stopped_at}",
        "seconds": run.seconds[-1] if run.seconds else None,
    }


def _rounds_commands(given: ReportInput) -> list[str]:
    run = _run(given)
    command = str(run.environment.get("command", ""))
    lines = ["# how the run was started", command] if command else []
    if run.experiment:
        lines += ["# the same run again", f"{run.rerun_command} --out {shlex.quote('again')}"]
        if run.status in ("unfinished", "stopped"):
            lines += ["# to resume it", run.resume_command]
    return lines


ROUNDS = Section(
    "rounds",
    "What happened",
    ("run",),
    _rounds_view,
    heading=Heading(
        "run", lambda given: outcome(_run(given)), _rounds_settings, _rounds_commands, _rounds_summary, _rounds_card
    ),
)


# -- how well the model serves each worker -----------------------------------------------------------------------------


def _workers_settings(given: ReportInput) -> Mapping[str, CellValue]:
    evaluation = given.result(WorkerEvaluation)
    return {"workers N": len(evaluation.losses), "federation": evaluation.federation, "model": evaluation.model}


WORKERS = Section(
    "workers",
    "How well it serves each worker",
    ("workers",),
    shown(WorkerEvaluation),
    heading=Heading("workers", answer(WorkerEvaluation), _workers_settings),
)


# -- the federation ----------------------------------------------------------------------------------------------------


def _federation_view(given: ReportInput) -> View | None:
    experiment, labels = given.background.experiment, given.background.labels
    if experiment is None:
        return None
    is_quadratic = experiment.data.is_quadratic
    entries: dict[str, Cell] = {"data": experiment.data.name}
    if not is_quadratic:
        entries["model"] = experiment.model.name or "mlp"
    entries["workers"] = given.background.num_workers
    charts = []
    if labels:
        sizes = [sum(row) for row in labels.counts]
        entries |= {
            "partition": labels.scheme,
            "examples": sum(sizes),
            "examples per worker": IntervalCell(min(sizes), max(sizes)) if min(sizes) < max(sizes) else sizes[0],
        }
        charts.append(labels_chart(labels.counts, labels.classes))
    if experiment.data.shift:
        entries["shift"] = ", ".join(str(text).replace("=", " ") for text in experiment.data.shift)
    remarks = ["Quadratics: the workers hold matrices, not examples."] if is_quadratic else []
    return View(facts=entries, charts=charts, notes=remarks)


FEDERATION = Section("federation", "The federation", (), _federation_view)


# -- the settings ------------------------------------------------------------------------------------------------------


def _settings_view(given: ReportInput) -> Mapping[str, Any]:
    return {"entries": given.headings[0].settings(given)}


SETTINGS = Section("settings", "Settings", (), _settings_view, "{{ facts(entries) }}")


# -- how to make it again ----------------------------------------------------------------------------------------------


_COMMANDS_TEMPLATE = """\
<h3>Commands</h3>{{ code(commands) }}
{% for name, text in files %}<details open><summary>{{ name }}</summary>{{ code(text) }}</details>{% endfor %}
<h3>Versions and environment</h3>{{ table(("", ""), environment, "environment") }}
"""


def _commands_view(given: ReportInput) -> Mapping[str, Any]:
    results, experiment = given.results, given.background.experiment
    lines = [line for heading in given.headings for line in heading.commands(given)]
    files = [file for heading in given.headings if heading.files for file in heading.files(given).items()]
    if experiment and (results.run or not any(heading.files for heading in given.headings)):
        files.append(("experiment.toml", experiment.to_toml()))
    environment = dict(results.run.environment) if results.run else {}
    held = environment.pop("versions", {})
    versions = held if isinstance(held, Mapping) else {"versions": held}
    rows: list[tuple[CellValue, ...]] = [(str(name), str(value)) for name, value in {**environment, **versions}.items()]
    rows.append(("this report", f"fedgauge {version('fedgauge')}, Python {platform.python_version()}"))
    lines += ["# this report", given.command] if given.command else []
    return {"commands": "\n".join(lines), "files": files, "environment": rows}


COMMANDS = Section("commands", "How to make this again", (), _commands_view, _COMMANDS_TEMPLATE)
