"""How well the model serves each worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.show.page.chart import Series, lines
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.web.elements import CellValue, table

_TEMPLATE = """\
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}
<div class="beside"><h3>Over workers</h3>{{ numbers }}</div></div>
{{ notes(remarks) }}
"""


def _found(given: ReportInput) -> WorkerEvaluation:
    found: WorkerEvaluation = given.found.by_kind[WorkerEvaluation.kind]
    return found


def _show(given: ReportInput) -> Mapping[str, Any]:
    found = _found(given)
    summary = found.summary()
    columns = {"loss": found.losses} | ({"accuracy": found.accuracies} if found.accuracies else {})
    charts = [
        lines(
            f"workers-{name}",
            [Series(name, [float(place) for place in range(1, len(values) + 1)], sorted(values))],
            title=f"{name.capitalize()} of the workers, in growing order",
            x_label="worker",
            y_label=name,
            log=False,
        )
        for name, values in columns.items()
    ]
    rows: list[list[CellValue]] = [[what, *(summary[name][what] for name in summary)] for what in summary["loss"]]
    worst = ", ".join(map(str, found.worst_workers()[:10]))
    remarks = [f"Each worker on its own training examples. The worst 10%, worst first: {worst}."]
    return {"charts": charts, "numbers": table(["", *summary], rows), "remarks": remarks}


def _verdict(given: ReportInput) -> str:
    shown = _found(given).summary()
    if "accuracy" in shown:
        found = shown["accuracy"]
        return f"Accuracy by worker: {found['mean']:.1%} on average, {found['worst 10%']:.1%} for the worst 10%."
    return (
        f"Loss by worker: {shown['loss']['mean']:.4g} on average, {shown['loss']['worst 10%']:.4g} for the worst 10%."
    )


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    found = _found(given)
    return {"workers N": len(found.losses), "federation": found.federation, "model": found.model}


SECTION = Section(
    "workers", "How well it serves each worker", ("workers",), _show, _TEMPLATE, Heading("workers", _verdict, _settings)
)
