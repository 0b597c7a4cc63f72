"""What ``fedgauge reproduce`` writes, as parts of a report: certified bounds, figures, tables, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauge.report.page.chart import Chart, Series, Style, lines
from fedgauge.report.page.planned import sweep
from fedgauge.report.page.sections import Section, estimates
from fedgauge.report.page.shapes import Certified, Figure, Ledger, Line, Table1, Table2
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


def table1(found: Table1) -> Section:
    """A chart for each constant and all of it as a table."""
    percents = [row.percent for row in found.rows]
    charts = []
    for symbol, printed in found.paper.items():
        series = []
        for place, name in enumerate(found.rows[0].readings):
            held = [row.readings[name][symbol] for row in found.rows if name in row.readings]
            if len(held) == len(percents):
                low, high = [mean - spread for mean, spread in held], [mean + spread for mean, spread in held]
                series.append(Series(name, percents, [mean for mean, _ in held], place, "line", low, high))
        paper = [printed[str(percent)][0] for percent in percents]
        series.append(Series("paper", percents, paper, 5, "dashed"))
        note = "Bands: the deviation over seeds."
        charts.append(
            lines(f"table1-{symbol}", series, title=symbol, x_label="X, % of one label", y_label=symbol, note=note)
        )
    rows: list[list[Cell]] = [
        [
            f"{row.percent}%",
            symbol,
            f"{found.paper[symbol][str(row.percent)][0]:g}",
            *(f"{held[symbol][0]:.3g} ± {held[symbol][1]:.2g}" for held in row.readings.values()),
        ]
        for row in found.rows
        for symbol in found.paper
    ]
    heads = ("X", "", "paper", *found.rows[0].readings)
    html = f'<div class="charts">{"".join(chart.html for chart in charts)}</div>{table(heads, rows, "cards")}'
    return Section("table1", "Table 1: the constants", html, tuple(charts))


def table2(found: Table2) -> Section:
    """Rounds to the target: the paper's, and ours with the least and the most over problems."""
    workers = list(dict.fromkeys(N for column in found.columns for N in column.ours))

    def shown(held: Mapping[str, float] | None) -> str | None:
        return f"{held['median']:g} ({held['low']:g} to {held['high']:g})" if held else None

    rows: list[list[Cell]] = [
        [column.label, column.paper, *(shown(column.ours.get(N)) for N in workers)] for column in found.columns
    ]
    heads = ("setting", "paper", *(f"N = {N}: median (least to most)" for N in workers))
    return Section("table2", "Table 2: rounds to the target", table(heads, rows, "cards"))


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
