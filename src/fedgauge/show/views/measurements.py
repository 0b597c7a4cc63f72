"""What was measured of a federation: constants, where they come from, and the workers one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.values import Measurement, Reading, WorkerEvaluation
from fedgauge.show.charts import HeatMap, LineChart, Row, RowChart, Series
from fedgauge.show.views.view import (
    Cell,
    Share,
    SymbolCell,
    Table,
    View,
    Written,
    counted_share,
    estimates_table,
    number,
    view,
)
from fedgauge.values import Constants, Estimate
from fedgauge.values.display import counted, short

MOST_WORKERS = 200
"""The columns of a heat map that a screen still tells apart."""
_MOST_ROWS = 5


@view.register
def view_of_measurement(measurement: Measurement, parts: bool = True) -> View:
    """The constants by reading, what they mean for local steps and, with ``parts``, where they come from."""
    taken = [reading for reading in measurement.readings if reading.estimates]
    rows = [
        (e.symbol, reading, e, colour % 8)
        for colour, reading in enumerate(taken)
        for e in reading.estimates
        if "table" not in reading.details
    ]
    by_reading = RowChart(
        "constants",
        [Row(name, r.name, e.value, e.low, e.high, colour, e.kind) for name, r, e, colour in rows if e.value > 0],
        title="Each constant, by reading",
        x_label="value",
        note="What happened along a trajectory can only lie below what is possible.",
    )
    tables = [estimates_table(measurement.constants.values(), "The constants for a bound")]
    tables += [_by_reading([r for r in taken if "table" not in r.details])]
    tables += [estimates_table(r.estimates, r.details["table"]) for r in taken if "table" in r.details]
    known = parts_of(measurement) if parts else None
    charts = [chart for chart in (by_reading, _over_rounds(measurement)) if chart.drawn]
    shown = view_of_parts(known) if known else View()
    point = measurement.point
    where = str(point.get("origin", "–"))
    if "rule" in point:
        at = f"round {point.get('round')}: " if point.get("reached") else ""
        where += f" ({at}{point['rule']})"
    notes = [] if measurement.complete else ["The measurement stopped before all readings were taken."]
    notes += [*point.get("remarks", ()), *(note for reading in measurement.readings for note in reading.notes)]
    meanings = Table(
        ("reading", "what it is"), [(r.name, r.meaning) for r in measurement.readings], "What the readings are"
    )
    return View(
        (verdict(measurement),),
        title=f"Constants at the model: {where}",
        facts={
            "measured at": where,
            "f there": point.get("loss"),
            "‖∇f‖² there": point.get("grad2"),
            **measurement.cost,
        },
        tables=(*tables, *shown.tables, meanings),
        charts=(*charts, *shown.charts),
        notes=notes,
        columns=2,
    )


def _by_reading(taken: Sequence[Reading]) -> Table:
    """The constants of all readings, one column for each reading."""
    names = list(dict.fromkeys(estimate.symbol for reading in taken for estimate in reading.estimates))
    rows = [[name, *(_cell(reading.constants.get(name)) for reading in taken)] for name in names]
    return Table(("symbol", *(reading.name for reading in taken)), rows, "By reading", splits=True)


def _cell(estimate: Estimate | None) -> Cell:
    if estimate is None:
        return None
    # If there is no upper end, the kind says so; ends that look alike say nothing.
    low, high = f"{estimate.low:.3g}", f"{estimate.high:.3g}"
    ends = f"\n[{low}, {high}]" if low != high and estimate.high < math.inf else ""
    return Written(estimate.value, f"{number(estimate.value)} {estimate.kind}{ends}")


def _over_rounds(measurement: Measurement) -> LineChart:
    """L_h round by round, and at the model."""
    trajectory, possible = measurement.reading("trajectory"), _value(measurement.reading("curvature"), "L_h")
    rounds = trajectory.details.get("rounds", []) if trajectory else []
    series = []
    for place, seed in enumerate(sorted({record["seed"] for record in rounds})):
        mine = [record for record in rounds if record["seed"] == seed and record["L_h_ratio"] is not None]
        x, y = [float(record["round"]) for record in mine], [float(record["L_h_ratio"]) for record in mine]
        series.append(Series(f"measured, seed {seed}", x, y, place % 5))
    ends = [at for one in series for at in one.x] or [0.0, 1.0]
    if possible:
        series.append(Series("possible at the model", [min(ends), max(ends)], [possible] * 2, 5, "dashed"))
    title = "L_h round by round, and at the model"
    return LineChart("L_h-rounds", series, title, "round from the model", "L_h")


def verdict(measurement: Measurement) -> str:
    """What the measurement means for local steps, in a sentence or two."""
    happened, possible = (_value(measurement.reading(name), "L_h") for name in ("trajectory", "curvature"))
    local = _value(measurement.reading("curvature") or measurement.reading("trajectory"), "L_tilde")
    if happened is not None and possible is not None:
        if possible == 0:
            return "The workers' Hessians agree here: L_h is 0, and local steps lose nothing to heterogeneity."
        times = f"{possible / happened:.3g} times" if happened > 0 else "beyond"
        both = f"L_h: {number(happened)} happened along FedAvg's steps, {number(possible)} is possible"
        return f"{both} at this model ({times} that); L_tilde, which it replaces, is {number(local)}."
    if happened is not None or possible is not None:
        kind = "happened along FedAvg's steps" if happened is not None else "is possible at this model"
        return f"L_h: {number(happened if happened is not None else possible)} {kind}."
    return "L_h was not measured."


def _value(reading: Reading | None, name: str) -> float | None:
    estimate = reading.constants.get(name) if reading else None
    return estimate.value if estimate else None


# -- single constants ------------------------------------------------------------------------------------------------


def estimates_chart(estimates: Iterable[Estimate], title: str) -> RowChart:
    """Constants with their intervals."""
    rows = [Row(f"{e.symbol} ({e.kind})", "constants", e.value, e.low, e.high, 0, e.kind) for e in estimates]
    positive = [row.value for row in rows if row.value > 0]
    log = len(positive) == len(rows) > 0 and max(positive) > 50 * min(positive)
    return RowChart("estimates", rows, title, "value", log=log)


@view.register
def view_of_reading(reading: Reading) -> View:
    """What a reading is, and its constants."""
    tables = (estimates_table(reading.estimates),) if reading.estimates else ()
    charts = (estimates_chart(reading.estimates, reading.name),)
    return View((f"{reading.name}: {reading.meaning}",), tables=tables, charts=charts, notes=reading.notes)


@view.register
def view_of_constants(constants: Constants) -> View:
    """Constants as a table."""
    sentences = (f"{counted(len(constants), 'constant')}.",)
    return View(
        sentences,
        tables=(estimates_table(constants.values()),),
        charts=(estimates_chart(constants.values(), "constants"),),
    )


# -- where constants come from ---------------------------------------------------------------------------------------


def parts_of(measurement: Measurement) -> Decomposition | None:
    """Where the constants come from, if the reading ``parts`` was taken."""
    reading = measurement.reading("parts")
    return Decomposition.from_json(reading.details) if reading and reading.details else None


@view.register
def view_of_parts(decomposition: Decomposition) -> View:
    """Which blocks of parameters and which workers contribute most to each constant, and which workers stand out."""
    rows, tables = [], []
    for part in decomposition.parts:
        block, worker = int(part.by_block.argmax()), int(part.by_worker.argmax())
        block_share, worker_share = Share(float(part.by_block[block])), Share(float(part.by_worker[worker]))
        far = ", ".join(f"worker {each}" for each in part.outliers) or "none"
        named = f"{part.blocks[block]}, {block_share}", f"worker {worker}, {worker_share}"
        rows.append([SymbolCell(part.symbol), part.total**0.5, *named, far])
        tables += [_largest(part, "block", part.blocks, part.by_block.tolist())] if len(part.blocks) > 1 else []
        workers = [str(number) for number in range(len(part.weights))]
        tables.append(_largest(part, "worker", workers, part.by_worker.tolist()))
    heads = ("", "value", "largest layer", "largest worker", "stand out")
    beyond = "Workers stand out beyond median + 3 · 1.4826 · MAD of their distances."
    sentences = [_sentence(part) for part in decomposition.parts]
    charts = [parts_chart(part) for part in decomposition.parts]
    first = Table(heads, rows, "Where the constants come from", beyond)
    return View(sentences, tables=(first, *tables), charts=charts, columns=2)


def _sentence(part: Parts) -> str:
    """A constant's square, the block that most of it comes from, and the workers that stand out."""
    most = int(part.by_block.argmax())
    block = f", {part.by_block[most]:.0%} of it from {part.blocks[most]}" if len(part.blocks) > 1 else ""
    far = ", ".join(map(str, part.outliers[: 2 * _MOST_ROWS])) or "none"
    return f"{part.symbol}² = {short(part.total)}{block}; workers that stand out: {far}."


def _largest(part: Parts, what: str, names: Sequence[str], shares: Sequence[float]) -> Table:
    order = sorted(range(len(shares)), key=lambda place: -shares[place])[:_MOST_ROWS]
    more = len(names) - len(order)
    rows = [(names[place], Share(shares[place])) for place in order]
    return Table((what, "share"), rows, f"{part.symbol}² by {what}", f"and {more} more" * bool(more))


def parts_chart(part: Parts) -> HeatMap:
    """The share of each worker and each block in a constant."""
    total = len(part.weights)
    largest = sorted(sorted(range(total), key=part.by_worker.tolist().__getitem__, reverse=True)[:MOST_WORKERS])
    more = f" The {len(largest)} of {total:,} workers with the largest parts." if len(largest) < total else ""
    name = {"zeta_rms": "gradient divergence ζ²", "L_h": "drift L_h²"}.get(part.symbol, part.symbol)
    return HeatMap(
        f"parts-{part.symbol}",
        part.shares[largest].T.tolist(),
        part.blocks,
        [str(worker) for worker in largest],
        title=f"Where {name} comes from",
        row_label="layer",
        column_label="worker",
        note=f"Shares of the whole, which add up; the bars are sums.{more}",
        share=True,
        marked=[largest.index(worker) for worker in part.outliers if worker in largest],
    )


# -- how well a model serves each worker -------------------------------------------------------------------------------


@view.register
def view_of_workers(evaluation: WorkerEvaluation) -> View:
    """Mean, quantiles and the worst workers, and all workers in growing order."""
    summary, columns = evaluation.summary(), {"loss": evaluation.losses}
    columns |= {"accuracy": evaluation.accuracies} if evaluation.accuracies else {}
    charts = [
        LineChart(
            f"workers-{name}",
            [Series(name, [float(place) for place in range(1, len(values) + 1)], sorted(values))],
            title=f"{name.capitalize()} of the workers, in growing order",
            x_label="worker",
            y_label=name,
            log=False,
        )
        for name, values in columns.items()
    ]
    rows = [[what, *(_worker_cell(name, summary[name][what]) for name in summary)] for what in summary["loss"]]
    worst = evaluation.worst_workers()[:10]
    examples = [evaluation.examples] if evaluation.examples else []
    numbers = [
        [
            str(worker),
            *(held[worker] for held in examples),
            *(_worker_cell(name, columns[name][worker]) for name in columns),
        ]
        for worker in worst
    ]
    heads = ("worker", *["examples"] * bool(examples), *columns)
    title = f"{counted(len(evaluation.losses), 'worker')}, each on its own training examples"
    first = summary.get("accuracy")
    if first:
        sentence = f"Accuracy by worker: {first['mean']:.1%} on average, {first['worst 10%']:.1%} for the worst 10%."
    else:
        first = summary["loss"]
        sentence = f"Loss by worker: {first['mean']:.4g} on average, {first['worst 10%']:.4g} for the worst 10%."
    tables = Table(("over workers", *summary), rows, title), Table(heads, numbers, "The worst workers")
    notes = [f"Each worker on its own training examples. The worst 10%, worst first: {', '.join(map(str, worst))}."]
    return View((sentence,), tables=tables, charts=charts, notes=notes)


def _worker_cell(name: str, value: float) -> Cell:
    return value if name == "loss" else counted_share(value)
