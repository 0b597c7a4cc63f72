"""Which of the paper's results are there, which are missing, and how many hours these take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.simulation.experiment.config import ended_run
from fedgauge_planning.sweep import Cell, Sweep
from fedgauge_wang2024 import table1, table2
from fedgauge_wang2024.earlier import known_cell, known_runs
from fedgauge_wang2024.exhibits import earlier_curves, earlier_table, table1_of
from fedgauge_wang2024.places import kept, place_of, scale_of
from fedgauge_wang2024.results import PaperStatus, StatusLine
from fedgauge_wang2024.studies import CURVES, PERCENTS, STUDIES, Scale, Study
from fedgauge_wang2024.workload import StepTime, measure_pace, steps_of, workloads


@dataclass
class _Timing:
    """The pace of networks that no kept result has timed; each is timed once."""

    scale: Scale
    seconds: float
    progress: Progress
    paces: dict[str, StepTime]

    def of(self, study: Study) -> StepTime:
        if study.name not in self.paces:
            self.progress(f"timing {study.title}", len(self.paces), None)
            self.paces[study.name] = measure_pace(study, self.scale, self.seconds)
        return self.paces[study.name]


class _Known(NamedTuple):
    """The seconds of the runs or cells that are there, by name; ``None`` where one does not say."""

    seconds: Mapping[Any, float | None]

    def each(self) -> float | None:
        """The mean over those that say."""
        said = [seconds for seconds in self.seconds.values() if seconds]
        return sum(said) / len(said) if said else None


def status(
    results: Path,
    effort: Scale = "laptop",
    models: tuple[str, ...] = (),
    seconds: float = 2.0,
    progress: Progress = silent,
) -> dict[str, Any]:
    """What is there at an effort, and what is missing.

    Args:
        results: the directory of all results.
        effort: how much is computed.
        models: only these networks; by default all, and what has none.
        seconds: how long a network is timed that no kept result has timed.
        progress: called with the network that is being timed.
    """
    timing = _Timing(effort, seconds, progress, {})
    lines = [] if models else [*_exact(results)]
    for study in STUDIES.values():
        if study.name in (models or STUDIES):
            lines += _curves(results, study, timing)
            if study.name in table1.PAPER:
                lines.append(_constants(results, study, timing))
    return PaperStatus(str(effort), tuple(lines)).to_json()


def _exact(results: Path) -> Iterator[StatusLine]:
    """What has one size and takes seconds or minutes."""
    for name, exhibit, command in (("fig1", "Figure 1", "figure 1"), ("sampling", "Theorem 4.5", "sampling")):
        found = len([*kept(results, name)][:1])
        yield StatusLine(exhibit, "", found, 0, 1, "result", 0.0, "" if found else "seconds", f"paper {command}")
    cells = [cell for place, found in kept(results, "table2") if place.name == "table2" for cell in found["cells"]]
    wanted = 12 * len(table2.WORKERS)
    there = min(len(cells), wanted)
    left = "" if there == wanted else "minutes"
    yield StatusLine("Table 2", "", there, 0, wanted, "problem", 0.0, left, "paper table 2")


def _curves(results: Path, study: Study, timing: _Timing) -> Iterator[StatusLine]:
    """A network's curves, percentage by percentage; figures that show the same runs share a line."""
    work = {each.part: each for each in workloads(study, timing.scale)}
    cells = {percent: _cells(study, timing.scale, percent) for percent in PERCENTS}
    known = _runs(results, study, timing.scale, [cell for each in cells.values() for cell in each])
    lengths = {cell.name: steps_of(cell.experiment) for each in cells.values() for cell in each}
    spent = sum(known.seconds[name] or 0.0 for name in known.seconds)
    steps = sum(lengths[name] for name in known.seconds)
    for percent in PERCENTS:
        figures = [name for name, panels in CURVES.items() if (study.name, percent) in {p[:2] for p in panels}]
        missing = sum(lengths[cell.name] for cell in cells[percent] if cell.name not in known.seconds)
        there = sum(cell.name in known.seconds for cell in cells[percent])
        hours, basis = 0.0, ""
        if missing and spent:
            hours, basis = missing * spent / steps / 3600, f"{len(known.seconds)} kept runs"
        elif missing:
            whole = work[f"{percent}%"]
            hours = timing.of(study).hours(whole) * missing / whole.steps
            basis = "timed here"
        number = figures[0].removeprefix("fig")
        several = len({panel.study for panel in CURVES[figures[0]]}) > 1
        name = "linear" if figures == ["linear"] else f"figure {number}{f' --model {study.name}' * several}"
        yield StatusLine(
            _shown(figures),
            f"{study.title}, {percent}%",
            there,
            _older(_older_runs(results, study, timing.scale, percent), there, len(cells[percent])),
            len(cells[percent]),
            "run",
            hours,
            basis,
            f"paper {name} --percent {percent} --effort {timing.scale}",
        )


def _shown(figures: list[str]) -> str:
    numbers = [name.removeprefix("fig") for name in figures]
    return "not shown" if figures == ["linear"] else f"Figure{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _cells(study: Study, scale: Scale, percent: int) -> list[Cell]:
    size = study.sizes[scale]
    first = study.experiment(scale, percent=float(PERCENTS[0]))
    return Sweep(first, {"local_steps": size.local_steps, "percent": [float(percent)]}, size.seeds).cells


def _runs(results: Path, study: Study, scale: Scale, cells: list[Cell]) -> _Known:
    """The finished runs of a network, in the results of figures and in the directory of runs."""
    found: dict[Any, float | None] = {}
    for name in (name for name, panels in CURVES.items() if study.name in {panel.study for panel in panels}):
        known = known_runs(earlier_curves(results, name, scale), study.name, study.experiment(scale).to_json())
        found |= {run: held["seconds"] for run, held in known.items()}
    for cell in cells:
        if cell.name not in found:
            trace = ended_run(
                cell.experiment, results / "runs" / f"{study.name}-{scale}" / cell.name, with_any_data=True
            )
            if trace is not None:
                found[cell.name] = trace.seconds[-1] if trace.seconds else None
    return _Known({cell.name: found[cell.name] for cell in cells if cell.name in found})


def _older(held: int, there: int, wanted: int) -> int:
    """How many that results hold are not there as they are asked for, of those that are wanted."""
    return min(max(held - there, 0), wanted - there)


def _older_runs(results: Path, study: Study, scale: Scale, percent: int) -> int:
    """How many runs the results of an effort have at a percentage, whatever their settings."""
    found = 0
    for name in (name for name, panels in CURVES.items() if study.name in {panel.study for panel in panels}):
        for _, result in kept(results, name):
            held = result.get("studies", {}).get(study.name)
            if held and scale_of(result) == scale:
                curves = [each for each in held["combinations"] if each["values"]["percent"] == percent]
                found = max(found, sum(len(each.get("runs", ())) or held["seeds"] for each in curves))
    return found


def _older_cells(results: Path, study: Study, scale: Scale) -> int:
    """How many cells the Table 1 of an effort has, whatever their settings."""
    places = kept(results, table1_of(study.name))
    return max([len(result.get("cells", ())) for _, result in places if scale_of(result) == scale], default=0)


def _constants(results: Path, study: Study, timing: _Timing) -> StatusLine:
    """A network's Table 1."""
    scale, size = timing.scale, study.sizes[timing.scale]
    place = place_of(results, table1_of(study.name), scale)
    earlier = earlier_table(results, study.name, scale)
    found: dict[Any, float | None] = {}
    settings = table1.settings(study, scale)
    for percent in table1.PERCENTS:
        for seed in range(size.seeds):
            experiment = table1.experiment(study, scale, percent, seed)
            cell = known_cell(earlier, percent, seed, experiment.to_json(), **settings)
            cell = cell or table1.kept_cell(place / "cells", study, scale, percent, seed)
            if cell is not None:
                found[percent, seed] = cell.get("seconds")
    known, wanted = _Known(found), size.seeds * len(table1.PERCENTS)
    missing, hours, basis = wanted - len(found), 0.0, ""
    if missing and (each := known.each()):
        hours, basis = missing * each / 3600, f"{len(found)} kept cells"
    elif missing:
        work = [each for each in workloads(study, scale) if each.part.startswith("Table 1")]
        hours = sum(map(timing.of(study).hours, work)) * missing / wanted
        basis = "timed here"
    model = "" if study.name == "mlp" else f" --model {study.name}"
    command = f"paper table 1{model} --effort {scale}"
    older = _older(_older_cells(results, study, scale), len(found), wanted)
    return StatusLine("Table 1", study.title, len(found), older, wanted, "cell", hours, basis, command)


def show(found: Mapping[str, Any]) -> None:
    """Print it."""
    from fedgauge.show import console

    held = PaperStatus.from_json(found)
    rows = [
        (
            line.exhibit,
            line.about,
            f"{line.there} of {line.wanted}" + (f", {line.older} older" if line.older else f" {line.unit}s"),
            "" if line.there == line.wanted else f"{line.hours:.1f}" if line.hours else line.basis,
            line.basis if line.hours else "",
        )
        for line in held.lines
    ]
    title = f"Results at the effort {held.effort}"
    caption = f"{held.verdict} Kept cells of Table 1 had all cores; what was timed here is an estimate."
    if any(line.older for line in held.lines):
        caption += " Older ones have other settings or no single runs, and would be made again."
    console.table(title, ("in", "about", "there", "hours", "hours from"), rows, caption)
    missing = [line for line in held.lines if line.there < line.wanted]
    if missing:
        console.out.print(f"The next: fedgauge {min(missing, key=lambda line: line.hours).command}")
