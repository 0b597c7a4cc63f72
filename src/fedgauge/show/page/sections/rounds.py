"""What happened in a run: every recorded quantity over the rounds, and why local steps changed where they adapt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.views.answers import view_of_answer
from fedgauge.show.views.bounds import worth
from fedgauge.show.views.runs import course_of, outcome
from fedgauge.show.views.view import View
from fedgauge.show.web.elements import CellValue
from fedgauge.simulation.runs.reader import FoundRun, answer_of


def _show(given: ReportInput) -> View | None:
    run = given.found.run
    if run is None or not run.rounds:
        return None
    # The numbers of the rounds are below the charts; the notes are at the beginning of the page, or in its settings.
    shown = course_of(run)
    return replace(shown, tables=shown.tables[1:], notes=())


# -- what a report on a run says at its beginning and its end --------------------------------------------------------


def _run(given: ReportInput) -> FoundRun:
    assert given.found.run is not None
    return given.found.run


def _steps(held: Any) -> Any:
    """The local steps of a run for a reader."""
    if held is None:
        return "unknown"
    if isinstance(held, Mapping):
        return held.get("name", "auto")
    return f"{min(held)} to {max(held)}, one number per worker" if isinstance(held, list) else held


def _card(given: ReportInput) -> View | None:
    """What a live gauge has learned in the run, if there was one."""
    found = answer_of(_run(given).settings, _run(given).rounds)
    return view_of_answer(found) if found else None


def _summary(given: ReportInput) -> str:
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


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
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


def _commands(given: ReportInput) -> list[str]:
    run = _run(given)
    command = str(run.environment.get("command", ""))
    found = ["# how the run was started", command] if command else []
    if run.experiment:
        found += ["# the same run again", f"{run.rerun_command} --out {shlex.quote('again')}"]
        if run.status in ("unfinished", "stopped"):
            found += ["# to resume it", run.resume_command]
    return found


SECTION = Section(
    "rounds",
    "What happened",
    ("run",),
    _show,
    heading=Heading("run", lambda given: outcome(_run(given)), _settings, _commands, _summary, _card),
)
