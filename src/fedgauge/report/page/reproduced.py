"""What ``fedgauge reproduce`` writes, as parts of a report: certified bounds beside runs, figures, and the ledger."""

from __future__ import annotations

from fedgauge.report.page.chart import Chart, Series, Style, lines
from fedgauge.report.page.planned import sweep
from fedgauge.report.page.sections import Section, estimates
from fedgauge.report.page.shapes import Certified, Figure, Ledger, Line
from fedgauge.report.page.tables import Cell, table
from fedgauge.theory import find
from fedgauge.values import Constants

_LOOKS: dict[str, tuple[int, Style]] = {"corrected": (4, "line"), "sharp": (3, "line"), "prior": (5, "dashed")}


def certified(found: Certified) -> Section:
    """A chart for each theorem and partition, all lines as a table, and the constants that were proved."""
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in found.lines:
        groups.setdefault((line.theorem, line.percent), []).append(line)
    charts = tuple(_chart(theorem, percent, held) for (theorem, percent), held in groups.items())
    rows: list[list[Cell]] = [
        [
            f"{find(line.theorem).locator}, {line.percent}% of one label",
            line.I,
            line.versions[line.new].bound,
            line.least,
            line.worst,
            line.looseness,
            line.prior_over_new,
            "certified" if line.versions[line.new].certified else "plug-in",
        ]
        for line in found.lines
    ]
    heads = ("", "I", "bound", "least, median", "least, worst", "bound/mean", "prior/corrected", "worth")
    proved = "".join(
        f"<details><summary>Constants at {int(percent)}% of one label</summary>"
        f"{estimates(Constants(tuple(held.values())))}</details>"
        for percent, held in found.constants.items()
    )
    html = f'<div class="charts">{"".join(chart.html for chart in charts)}</div>{table(heads, rows, "cards")}{proved}'
    return Section("certified", "Certified bounds beside runs", html, charts)


def figure(found: Figure) -> list[Section]:
    """A section for each study that the figure shows."""
    return [sweep(study, f"study-{name}", f"{name}, {found.scale} scale") for name, study in found.studies.items()]


def ledger(found: Ledger) -> Section:
    """The claims with their verdicts, those that did not come out first."""
    order = ("not reproduced", "reproduced in order but not in size", "reproduced", "not run")
    rows: list[list[Cell]] = [
        [row.claim, row.where, row.paper, row.ours, row.scale, row.seeds, row.verdict, row.command]
        for row in sorted(found.claims, key=lambda row: order.index(row.verdict) if row.verdict in order else 0)
    ]
    heads = ("claim", "in", "paper", "ours", "scale", "seeds", "verdict", "command")
    return Section("ledger", "The paper’s claims", table(heads, rows, "cards"))


def _chart(theorem: str, percent: int, held: list[Line]) -> Chart:
    held = sorted(held, key=lambda line: (line.R, line.I))
    steps = [line.I for line in held]
    low, high = [min(line.least, line.worst) for line in held], [max(line.least, line.worst) for line in held]
    series = [Series("measured, median to worst seed", steps, [line.least for line in held], 0, "line", low, high)]
    for version, (colour, style) in _LOOKS.items():
        drawn = [line for line in held if version in line.versions]
        if drawn:
            bounds = [line.versions[version].bound for line in drawn]
            series.append(Series(version, [line.I for line in drawn], bounds, colour, style))
    return lines(
        f"certified-{theorem}-{percent}",
        series,
        title=f"{find(theorem).locator}, {percent}% of one label",
        x_label="local steps I",
        y_label="what the theorem bounds",
        log_x=True,
        note="Each version at its own best rates; the runs at those of the newest.",
    )
