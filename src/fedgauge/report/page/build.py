"""The report put together: the verdict first, then whatever there is to show, and how to have it again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from fedgauge.experiment.sweep import shown as plain_value
from fedgauge.measurement.reading import Measurement
from fedgauge.report.page import planned, reproduced, sections
from fedgauge.report.page.findings import Findings
from fedgauge.report.page.sections import Section
from fedgauge.report.page.shapes import Certified, SweepResult
from fedgauge.report.page.tables import Cell, code, embedded, facts, finite, notes, table
from fedgauge.report.terminal import measurements
from fedgauge.runs.reader import FoundRun
from fedgauge.web.writing import policy, resource, shown

_PACKAGE = "fedgauge.report.page"


class Report(NamedTuple):
    """A report: the page, and everything that it shows as JSON."""

    html: str
    data: dict[str, Any]


def build(found: Findings, command: str = "") -> Report:
    """Write the report on what was found.

    Args:
        found: what to show.
        command: that the report was asked for with.
    """
    said = verdict(found)
    parts = [part for part in _parts(found, command) if part]
    # JSON has no infinity; the page's data is text where a number is infinite.
    data: dict[str, Any] = finite(
        {
            "path": found.path,
            "verdict": said,
            "sections": [part.name for part in parts],
            "bound": found.comparison.to_json() if found.comparison else None,
            "charts": {chart.name: chart.data for part in parts for chart in part.charts},
        }
    )
    style = resource("palette.css") + resource("page.css", _PACKAGE)
    script = f'(()=>{{"use strict";\n{resource("writing.js")}\n{resource("page.js", _PACKAGE)}}})();'
    html = Template(resource("page.html", _PACKAGE)).substitute(
        policy=policy(style, script),
        style=style,
        script=script,
        data=embedded(data),
        title=escape(f"{_title(found)} · fedgauge"),
        heading=escape(_title(found)),
        kind=escape(_kind(found)),
        verdict=escape(said),
        state=_state(found),
        contents="".join(f'<li><a href="#{part.name}">{escape(part.title)}</a></li>' for part in parts),
        parts="".join(
            f'<section id="{part.name}" aria-labelledby="title-{part.name}"><h2 id="title-{part.name}">'
            f"{escape(part.title)}</h2>{part.html}</section>"
            for part in parts
        ),
    )
    return Report(html, data)


def _parts(found: Findings, command: str) -> list[Section | None]:
    run, measurement, plan = found.run, found.measurement, found.plan
    theory = found.theory or (plan.theory if plan else None)
    plans = [
        planned.plan(plan, spoken=run is None) if plan else None,
        planned.certificate(theory) if theory else None,
    ]
    return [
        Section("asked", "What was asked", asked(found)),
        # A report on a plan begins with it; to a run it is what comes next.
        *(plans if run is None else ()),
        planned.sweep(found.sweep) if found.sweep else None,
        reproduced.certified(found.certified) if found.certified else None,
        *(reproduced.figure(found.figure) if found.figure else ()),
        reproduced.table1(found.table1) if found.table1 else None,
        reproduced.table2(found.table2) if found.table2 else None,
        reproduced.ledger(found.ledger) if found.ledger else None,
        sections.federation(found),
        sections.happened(run) if run else None,
        sections.constants(measurement) if measurement else None,
        sections.bound(found.comparison, run) if found.comparison and run else None,
        sections.origins(measurement) if measurement else None,
        *(plans if run is not None else ()),
        Section("again", "To have it again", again(found, command)),
    ]


# -- the beginning -----------------------------------------------------------------------------------------------


def _title(found: Findings) -> str:
    path = Path(found.path)
    return path.name or str(path.absolute().name)


def _kind(found: Findings) -> str:
    kinds: dict[str, object] = {"run": found.run, "plan": found.plan, "sweep": found.sweep}
    kinds |= {"table of certified bounds": found.certified, "plan by theory": found.theory}
    kinds |= {"measurement": found.measurement, "figure": found.figure, "ledger": found.ledger}
    kinds |= {"table of constants": found.table1, "table of rounds": found.table2}
    return " and ".join(name for name, value in kinds.items() if value)


def verdict(found: Findings) -> str:
    """What the report comes to, in one sentence."""
    if found.run:
        said = _said_of(found.run)
        return f"{said}; {found.comparison.words}." if found.comparison else f"{said}."
    if found.plan:
        return found.plan.verdict
    if found.sweep:
        return _best(found.sweep)
    told = found.certified or found.theory or found.table1 or found.table2 or found.ledger
    if told:
        return str(told.verdict)
    if found.figure:
        return " ".join(f"{name}: {_best(study)}" for name, study in found.figure.studies.items())
    assert found.measurement is not None
    return measurements.verdict(found.measurement)


def _said_of(run: FoundRun) -> str:
    settings, last = run.settings, run.last
    algorithm = dict(settings["algorithm"])
    name = algorithm.pop("name", "–")
    rates = ", ".join(f"{key} = {value:g}" for key, value in algorithm.items() if isinstance(value, int | float))
    what = f"{name} with I = {_steps(settings['local_steps'])}" + (f", {rates}" if rates else "")
    where = f" on {run.source}" if run.source != "–" else ""
    if last is None:
        return f"{what}{where} has recorded nothing yet"
    came = f"f from {shown(run.rounds[0].loss)} to {shown(last.loss)}"
    if last.accuracy is not None:
        came += f" and to {last.accuracy:.1%} test accuracy"
    if run.status == "diverged":
        return f"{what}{where} diverged in round {run.stopped_at}, after it had brought {came}"
    if run.status in ("unfinished", "stopped"):
        return f"{what}{where} is not finished: {last.round} of {settings['rounds']} rounds brought {came}"
    met = ", where its target was reached" if run.status == "target" else ""
    # Of an altered run the last records may be gone, and f is what the last one that is there says.
    there = last.round if last.round == run.stopped_at else f"the first {last.round} of {run.stopped_at}"
    return f"{what}{where} brought {came} in {there} rounds{met}"


def _steps(given: Any) -> Any:
    """The local steps of a run as a reader has them."""
    if given is None:
        return "unknown"
    if isinstance(given, Mapping):
        return "auto"
    return f"{min(given)} to {max(given)}, one a worker" if isinstance(given, list) else given


def _best(result: SweepResult) -> str:
    ended = [(each.loss.mean[-1], each) for each in result.combinations if each.loss and each.loss.mean]
    number = len(result.combinations)
    if not ended:
        return f"None of {number} combinations has a loss to show."
    least, best = min(ended, key=lambda pair: pair[0])
    values = ", ".join(f"{key} = {plain_value(value)}" for key, value in best.values.items()) or "the experiment"
    spread = f" ± {best.loss.deviation[-1]:.2g}" if best.loss and result.seeds > 1 else ""
    reached = f" and {best.accuracy.mean[-1]:.1%} test accuracy" if best.accuracy else ""
    diverged = sum(each.diverged for each in result.combinations)
    lost = f"; {diverged} runs diverged" if diverged else ""
    return (
        f"Of {number} combinations, {values} ends with the least loss, {shown(least)}{spread}{reached} after"
        f" {best.rounds[-1]} rounds, mean over {result.seeds} {'seed' if result.seeds == 1 else 'seeds'}{lost}."
    )


def _state(found: Findings) -> str:
    """What a reader must know before the rest: that a run is not whole, or that something could not be shown."""
    said = [*found.notes, *(found.run.told if found.run else ())]
    if found.run and found.run.status in ("unfinished", "stopped"):
        said.insert(0, f"The run is not finished; this is what it had recorded up to round {found.run.stopped_at}.")
    if found.run and found.run.note:
        said.append(f"Of the run’s files: {found.run.note}.")
    return notes(said, "warning")


def asked(found: Findings) -> str:
    """The settings that matter."""
    entries: dict[str, Cell] = {}
    if found.run:
        settings = found.run.settings
        algorithm, participation = dict(settings["algorithm"]), settings["participation"]
        entries |= {"algorithm": str(algorithm.pop("name", "–")), **algorithm}
        entries |= {
            "local steps I": _steps(settings["local_steps"]),
            "rounds R": settings["rounds"],
            "participation": str(participation.get("sampling", "full")),
            "participants M": participation.get("participants"),
            "seed": settings["seed"],
            **{
                name.replace("_", " "): settings.get(name)
                for name in ("target_loss", "target_accuracy", "target_grad2")
            },
            "status": f"{found.run.status}, round {found.run.stopped_at}",
            "seconds": found.run.seconds[-1] if found.run.seconds else None,
        }
    elif found.sweep:
        entries |= {key: ", ".join(map(plain_value, values)) for key, values in found.sweep.over.items()}
        entries |= {"seeds": found.sweep.seeds, "combinations": len(found.sweep.combinations)}
    elif found.plan:
        space = found.plan.space
        entries |= {"goal": found.plan.goal.words, "cost": found.plan.cost.name}
        entries |= {
            "I from": ", ".join(map(str, space.local_steps)),
            "γ from": ", ".join(f"{g:g}" for g in space.gammas),
        }
        entries |= {
            "η from": ", ".join(f"{e:g}" for e in space.etas),
            "M from": ", ".join(map(str, space.participants)),
        }
    elif found.theory:
        entries |= {"goal": found.theory.goal.words, "cost": found.theory.cost.name, "participants M": found.theory.M}
    elif found.figure:
        entries |= {"figure": found.figure.figure, "shows": found.figure.title, "scale": found.figure.scale}
    elif held := found.certified or found.table1 or found.table2:
        entries |= {name.replace("_", " "): str(value) for name, value in held.settings.items()}
    elif found.measurement:
        wanted = _wanted(found.measurement)
        entries |= {
            name: _joined(value) if isinstance(value, list) else str(value)
            for name, value in wanted.items()
            if value is not None
        }
    return facts(entries)


# -- the end -----------------------------------------------------------------------------------------------------


def again(found: Findings, command: str) -> str:
    """Commands, settings, versions and environment."""
    html = "<h3>Commands</h3>" + code("\n".join(_commands(found, command)))
    experiment = found.experiment
    if found.plan:
        html += f"<details open><summary>plan.toml</summary>{code(found.plan.toml)}</details>"
    if experiment and (found.run or not found.plan):
        html += f"<details open><summary>experiment.toml</summary>{code(experiment.to_toml())}</details>"
    environment = dict(found.run.environment) if found.run else {}
    given = environment.pop("versions", {})
    versions = given if isinstance(given, Mapping) else {"versions": given}
    rows: list[tuple[Cell, ...]] = [(str(name), str(value)) for name, value in {**environment, **versions}.items()]
    rows.append(("this report", f"fedgauge {version('fedgauge')}, Python {platform.python_version()}"))
    return html + "<h3>Versions and environment</h3>" + table(("", ""), rows, "environment")


def _commands(found: Findings, command: str) -> list[str]:
    lines = []
    run, measurement = found.run, found.measurement
    if run:
        given = str(run.environment.get("command", ""))
        lines += ["# as it was started", given] if given else []
        if run.experiment:
            lines += ["# the same once more", f"{run.again} --out again"]
        if run.status in ("unfinished", "stopped") and run.experiment:
            lines += ["# to go on with it", run.further]
    if measurement:
        source = shlex.quote(run.path) if run else "experiment.toml"
        lines += ["# the constants", _measuring(measurement, source, known=run is not None)]
    if found.plan:
        lines += ["# what was planned, from plan.toml below", "fedgauge simulate plan.toml --out planned"]
    if found.sweep and found.sweep.command:
        lines += ["# the sweep", found.sweep.command]
    if found.certified:
        lines += ["# the table", _certifying(found.certified)]
    if found.figure:
        again = f"fedgauge reproduce {found.figure.figure} --scale {found.figure.scale} --data DIR --out again"
        lines += ["# the figure", again]
    if found.table1:
        model, scale = found.table1.settings.get("study", "mlp"), found.table1.settings.get("scale", "laptop")
        again = f"fedgauge reproduce table1 --model {shlex.quote(str(model))} --scale {shlex.quote(str(scale))}"
        lines += ["# the table", f"{again} --data DIR --out again"]
    if found.table2:
        lines += ["# the table", "fedgauge reproduce table2 --out again"]
    return lines + (["# this report", command] if command else [])


def _certifying(certified: Certified) -> str:
    settings, lines = certified.settings, certified.lines
    parts = [f"fedgauge reproduce certified --source {shlex.quote(str(settings.get('source', 'digits')))}"]
    parts += [f"--{name} {settings[name]}" for name in ("rounds", "seeds") if name in settings]
    parts += [f"--theorem {theorem}" for theorem in dict.fromkeys(line.theorem for line in lines)]
    parts += [f"--local-steps {I}" for I in dict.fromkeys(line.I for line in lines)]  # noqa: E741
    return " ".join([*parts, "--out certified"])


def _joined(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _wanted(measurement: Measurement) -> Mapping[str, Any]:
    wanted = measurement.settings.get("asked")
    return wanted if isinstance(wanted, Mapping) else {}


def _measuring(measurement: Measurement, source: str, known: bool) -> str:
    wanted = _wanted(measurement)
    options = {"rounds": "--trajectory-rounds", "seeds": "--seeds", "fall": "--near", "most": "--most"}
    parts = ["fedgauge measure", source, "--readings", _joined(wanted.get("readings"))]
    origin = str(measurement.point.get("origin", ""))
    if origin.endswith(".safetensors") and not known:
        parts += ["--at", shlex.quote(origin)]
    parts += [f"{option} {wanted[name]}" for name, option in options.items() if name in wanted]
    return " ".join(parts)
