"""The parts of a report on a federation and a run: each appears where there is something to show, and computes nothing.

Plans and sweeps have their parts in :mod:`fedgauge.report.page.planned` and :mod:`fedgauge.report.page.swept`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fedgauge.measurement.reading import Measurement
from fedgauge.report.page.chart import Chart, Mark, Series, lines, stacked
from fedgauge.report.page.comparison import Comparison
from fedgauge.report.page.findings import Findings, Shares, parts_of
from fedgauge.report.page.grids import Interval, heat_map, intervals
from fedgauge.report.page.tables import Cell, Markup, facts, notes, number, table
from fedgauge.runs.reader import FoundRun
from fedgauge.symbols import SYMBOLS
from fedgauge.theory import find
from fedgauge.values import Constants, Estimate, Round, Version
from fedgauge.web.mathml import math as math_of
from fedgauge.web.mathml import quantity_html, symbol_math
from fedgauge.web.standings import STANDINGS
from fedgauge.web.writing import distance, percent, shown

_MOST_WORKERS = 200  # columns of a heat map that a screen still tells apart
KINDS = {
    "exact": "exact to rounding",
    "upper": "never above this",
    "lower": "at least this, perhaps more",
    "sample": "an estimate that may err on either side",
    "assumed": "a number that nobody has measured",
}


class Section(NamedTuple):
    """A part of the report: its name in addresses, its title, its HTML, and the data of its charts."""

    name: str
    title: str
    html: str
    charts: tuple[Chart, ...] = ()


def _charts(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(chart.html for chart in charts)}</div>' if charts else ""


def symbol_cell(name: str) -> Markup:
    """A symbol as mathematics writes it, with its meaning beside it."""
    meaning = escape(SYMBOLS[name].meaning)
    # A definition is too long for a table, and words in letters' clothes are no mathematics.
    long = any(word in SYMBOLS[name].latex for word in ("frac", "mathrm", "max"))
    drawn = f"<code>{escape(name)}</code>" if long else f"<math>{symbol_math(name)}</math>"
    return Markup(f'<span class="symbol">{drawn}</span><small>{meaning}</small>')


# -- the federation ----------------------------------------------------------------------------------------------


def federation(found: Findings) -> Section | None:
    """Who has what: labels by worker."""
    experiment = found.experiment
    if experiment is None:
        return None
    entries: dict[str, Cell] = {"data": experiment.data.name}
    if not experiment.data.is_quadratic:
        entries["model"] = experiment.model.name or "mlp"
    entries["workers"] = found.num_workers
    charts: list[Chart] = []
    if found.shares:
        sizes = [sum(row) for row in found.shares.counts]
        entries |= {
            "partition": found.shares.scheme,
            "examples": sum(sizes),
            "examples of a worker": Markup(f"{number(min(sizes))} to {number(max(sizes))}"),
        }
        charts.append(_partition(found.shares))
    said = "Quadratics: the workers hold matrices, not examples." if experiment.data.is_quadratic else ""
    beside = f'<div class="beside"><h3>What it is</h3>{facts(entries)}</div>'
    html = f'<div class="charts">{charts[0].html}{beside}</div>' if charts else facts(entries) + notes([said])
    return Section("federation", "The federation", html, tuple(charts))


def _partition(shares: Shares) -> Chart:
    counts = shares.counts[:_MOST_WORKERS]
    more = f" The first {len(counts)} of {len(shares.counts):,} workers." if len(counts) < len(shares.counts) else ""
    by_label = [[row[label] for row in counts] for label in range(len(shares.classes))]
    return heat_map(
        "partition",
        by_label,
        shares.classes,
        [str(worker) for worker in range(len(counts))],
        title="Examples of each label, by worker",
        row_label="label",
        column_label="worker",
        note=f"Darker is more; bars are the sums.{more}",
    )


# -- constants ---------------------------------------------------------------------------------------------------


def constants(measurement: Measurement) -> Section:
    """Every reading's constants with their intervals, and those that a bound is given."""
    taken = [reading for reading in measurement.readings if reading.estimates]
    items = [
        Interval(e.symbol, reading.name, e.value, e.low, e.high, colour % 8, e.kind)
        for colour, reading in enumerate(taken)
        for e in reading.estimates
        if e.value > 0 and reading.name != "lenses"
    ]
    charts = []
    if items:
        charts.append(
            intervals(
                "constants",
                items,
                title="Each constant, by reading",
                x_label="value",
                note="What happened along a trajectory can only lie below what is possible.",
            )
        )
    point = measurement.point
    entries: dict[str, Cell] = {"measured at": str(point.get("origin", "–")), "f there": point.get("loss")}
    entries["‖∇f‖² there"] = point.get("grad2")
    entries |= dict(measurement.cost)
    unfinished = [] if measurement.complete else ["Not all that was asked for was measured."]
    said = [f"{reading.name}: {reading.meaning}" for reading in measurement.readings]
    remarks = [note for reading in measurement.readings for note in reading.notes if reading.name != "parts"]
    html = (
        facts(entries)
        + notes(unfinished, "warning")
        + f'<div class="charts">{charts[0].html if charts else ""}'
        + f'<div class="beside"><h3>What a bound is given</h3>{estimates(measurement.constants)}</div></div>'
        + notes(remarks)
        + f"<details><summary>What the readings are</summary>{notes(said, 'plain')}</details>"
    )
    return Section("constants", "The constants", html, tuple(charts))


def estimates(found: Constants) -> str:
    """A table of constants: value, interval, kind, and whether a bound may rest on it."""
    rows = [
        [
            Markup(f'{symbol_cell(e.symbol)}<small class="how">{escape(e.method)}</small>'),
            e.value,
            _interval(e),
            _kind(e),
        ]
        for e in found.values()
    ]
    return table(("constant", "value", "interval", "kind"), rows, "estimates cards")


def _interval(estimate: Estimate) -> Cell:
    if estimate.low == estimate.high:
        return ""
    return Markup(f"{number(estimate.low)} to {number(estimate.high)}")


def _kind(estimate: Estimate) -> Markup:
    safe = "true" if estimate.certain else "false"
    worth = "a bound may rest on it" if estimate.certain else "a bound with it is a plug-in"
    return Markup(
        f'<span class="kind" data-safe="{safe}" title="{KINDS[estimate.kind]}: {worth}">{estimate.kind}</span>'
    )


# -- the bound ---------------------------------------------------------------------------------------------------

_LOOKS: dict[Version, tuple[int, str]] = {
    "corrected": (4, "line"),
    "printed": (1, "dashed"),
    "sharp": (3, "line"),
    "prior": (5, "dashed"),
}
_COLOURS = (0, 1, 2, 3, 4, 5, 6, 7)


def bound(found: Comparison, run: FoundRun) -> Section:
    """The theorem's versions beside what was measured, its terms over local steps, its conditions."""
    theorem, corrected = find(found.theorem), found.corrected
    charts = (_against(found), _terms(found, run))
    mark, title, why = STANDINGS[corrected.standing]
    rows: list[list[Cell]] = []
    for version, one in found.answers.items():
        worth = STANDINGS[one.standing]
        rows.append(
            [
                version,
                float(one.bound.total),
                float(one.bound.total) / found.reached if found.reached > 0 else None,
                float(one.bound.gamma_max),
                Markup(f'<span class="standing" data-standing="{one.standing}">{worth[0]} {worth[1]}</span>'),
            ]
        )
    conditions = "".join(
        f'<li class="{"holds" if c.holds else "fails"}"><span class="mark" aria-hidden="true">'
        f'{"✓" if c.holds else "✗"}</span><div><div class="what">{math_of(f"{c.name} <= {c.formula}")}</div>'
        f'<div class="how">{number(float(c.value))}, limit {number(float(c.limit))}: '
        f"{distance(float(c.limit), float(c.value))}</div></div></li>"
        for c in corrected.bound.conditions
    )
    parts: list[list[Cell]] = [
        [t.name, float(t.value), (share, percent(share)), _formula(t.formula)]
        for t, share in zip(corrected.bound.terms, corrected.shares, strict=True)
    ]
    html = (
        f'<p class="standing big" data-standing="{corrected.standing}"><b>{mark} {title}</b>: {why}.</p>'
        f"<p>{theorem.locator} bounds {quantity_html(corrected.bound.quantity)}, an expectation; the run is one draw of"
        f" it, and its least value before the last round was {number(found.reached)}.</p>"
        + notes([corrected.verdict])
        + _charts(charts)
        + f'<div class="charts"><div class="beside"><h3>Versions after {shown(corrected.values["R"])} rounds</h3>'
        + table(("version", "bound", "times what happened", "largest γ", "worth"), rows, "cards")
        + f'<h3>Conditions, corrected</h3><ul class="conditions">{conditions}</ul></div>'
        + '<div class="beside"><h3>Terms, corrected</h3>'
        + table(("term", "value", "share", "formula"), parts, "cards")
        + "</div></div><details><summary>Constants that went in</summary>"
        + estimates(found.constants)
        + "</details>"
    )
    return Section("bound", "Bound against reality", html, charts)


def _formula(text: str) -> Markup:
    """A formula, and what its letters stand for on lines of their own."""
    return Markup("".join(f"<div>{math_of(part)}</div>" for part in text.split(", ")))


def _against(found: Comparison) -> Chart:
    series = [Series("measured, least so far", found.records, found.least, 0, "steps")]
    totals = dict(found.totals)
    same = totals.get("printed") == totals.get("corrected")
    if same:
        del totals["printed"]
    for version, heights in totals.items():
        colour, style = _LOOKS[version]
        name = "corrected, as printed" if same and version == "corrected" else version
        standing = found.answers[version].standing
        worth = "not certified" if standing == "not certified" else standing
        series.append(Series(f"{name} ({worth})", found.rounds, heights, colour, style))  # type: ignore[arg-type]
    return lines(
        "bound",
        series,
        title=f"{find(found.theorem).locator} and the run on one axis",
        x_label="rounds R",
        y_label="min ‖∇f‖² over the rounds",
        log_x=True,
        note="With the constants that were measured; plug-in where one of them may be on the unsafe side.",
    )


def _terms(found: Comparison, run: FoundRun) -> Chart:
    layers = [
        (name, _COLOURS[index], heights)
        for index, (name, heights) in enumerate(found.terms.items())
        if any(height > 0 for height in heights)
    ]
    totals = [sum(heights) for heights in zip(*found.terms.values(), strict=True)]
    marks = [Mark(float(run.settings["local_steps"]), "the run")]
    limit = found.admitted
    said = "The conditions admit none of these I at the run’s rates."
    if limit is not None:
        most = limit == found.local_steps[-1]
        said = "The conditions admit all of these I." if most else f"The conditions admit I up to {limit}."
        if not most:
            marks.append(Mark(limit, "admitted"))
    return stacked(
        "terms",
        found.local_steps,
        layers,
        title="Terms of the corrected bound, over local steps",
        x_label="local steps I",
        y_label="bound",
        note=f"At the run’s rates and rounds. {said}",
        shares=max(totals) > 30 * min(totals),
        marks=marks,
    )


# -- what happened -----------------------------------------------------------------------------------------------

_RECORDED: tuple[tuple[str, str, str, bool], ...] = (
    ("loss", "Training loss f", "f", True),
    ("accuracy", "Test accuracy", "accuracy", False),
    ("grad2", "Squared gradient norm", "‖∇f‖²", True),
    ("spread", "How far the local models spread in a round", "mean squared distance", True),
)
_RATIOS = (("L_h_ratio", "L_h", 4), ("L_g_ratio", "L_g", 0), ("L_tilde_ratio", "L_tilde", 5))


def happened(run: FoundRun) -> Section | None:
    """Every recorded quantity over the rounds."""
    if not run.rounds:
        return None
    charts = []
    for name, title, label, log in _RECORDED:
        x, y = _column(run.rounds, name)
        if x:
            charts.append(lines(name, [Series(label, x, y)], title=title, x_label="round", y_label=label, log=log))
    paced = [record for record in run.rounds if record.looked]
    if paced:
        charts.append(_pace(paced))
    ratios = [(label, colour, *_column(run.rounds, name)) for name, label, colour in _RATIOS]
    seen = [Series(label, x, y, colour) for label, colour, x, y in ratios if x]
    everyone = any(record.L_g_ratio is not None for record in run.rounds)
    if seen:
        charts.append(
            lines(
                "ratios",
                seen,
                title="Constants as each round showed them",
                x_label="round",
                y_label="ratio, a lower bound" if everyone else "ratio",
                note="A bound fed with less than a round has shown does not cover the run."
                if everyone
                else "Some workers alone may show more than the L_h of all, so that its ratio bounds nothing.",
            )
        )
    decisions = [
        [record.round, record.looked[-1] if record.looked else None, record.why] for record in paced if record.why
    ]
    html = _charts(charts)
    if decisions:
        html += f"<h3>Why the local steps changed</h3>{table(('round', 'I', 'what follows, and why'), decisions)}"
    return Section("rounds", "What happened", html, tuple(charts))


def _pace(records: Sequence[Round]) -> Chart:
    """The local steps of a run that adapts them."""
    x = [float(record.round) for record in records]
    made = [float(record.looked[-1]) if record.looked else math.nan for record in records]
    kept = [math.nan if record.taken is None else float(record.taken) for record in records]
    return lines(
        "pace",
        [Series("made", x, made, 0, "steps"), Series("kept", x, kept, 4, "steps")],
        title="Local steps of each round",
        x_label="round",
        y_label="local steps I",
        note="Made, and after how many of them the round was taken to have ended: fewer where f was lower there.",
    )


def _column(rounds: Sequence[Round], name: str) -> tuple[list[float], list[float]]:
    kept = [(r.round, value) for r in rounds if (value := getattr(r, name)) is not None]
    return [float(at) for at, _ in kept], [float(value) for _, value in kept]


# -- where it comes from -----------------------------------------------------------------------------------------


def origins(measurement: Measurement) -> Section | None:
    """Which workers and which parameters zeta and L_h come from."""
    reading, parts = measurement.reading("parts"), parts_of(measurement)
    if not parts:
        return None
    charts, rows = [], []
    for part in parts:
        order = sorted(range(len(part.weights)), key=part.by_worker.__getitem__, reverse=True)
        kept = sorted(order[:_MOST_WORKERS])
        fewer = len(kept) < len(order)
        more = f" The {len(kept)} of {len(order):,} workers with the largest parts." if fewer else ""
        name = {"zeta_rms": "gradient divergence ζ²", "L_h": "drift L_h²"}.get(part.symbol, part.symbol)
        charts.append(
            heat_map(
                f"parts-{part.symbol}",
                [[row[worker] for worker in kept] for row in part.shares],
                part.blocks,
                [str(worker) for worker in kept],
                title=f"Where {name} comes from",
                row_label="layer",
                column_label="worker",
                note=f"Shares of all, which add up; bars are the sums.{more}",
                share=True,
                marked=[kept.index(worker) for worker in part.outliers if worker in kept],
            )
        )
        most = max(range(len(part.blocks)), key=part.by_block.__getitem__)
        rows.append(
            [
                symbol_cell(part.symbol),
                part.total**0.5,
                f"{part.blocks[most]}, {percent(part.by_block[most])}",
                f"worker {order[0]}, {percent(part.by_worker[order[0]])}",
                ", ".join(f"worker {worker}" for worker in part.outliers) or "none",
            ]
        )
    html = table(("", "value", "largest layer", "largest worker", "stand out"), rows, "cards")
    html += notes(reading.notes if reading else ()) + _charts(charts)
    return Section("origins", "Where heterogeneity comes from", html, tuple(charts))
