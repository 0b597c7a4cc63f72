"""The federation: its data, its model, and who has how many examples of which label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fedgauge.show.page.chart import Chart
from fedgauge.show.page.grids import heat_map
from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.results.background import LabelCounts
from fedgauge.show.web.elements import CellValue, number

MOST_WORKERS = 200
"""The columns of a heat map that a screen still tells apart."""
_TEMPLATE = """\
{% if charts %}<div class="charts">{{ charts[0].html }}
<div class="beside"><h3>What it is</h3>{{ facts(entries) }}</div></div>
{% else %}{{ facts(entries) }}{{ notes(remarks) }}{% endif %}
"""


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    experiment, labels = given.background.experiment, given.background.labels
    if experiment is None:
        return None
    is_quadratic = experiment.data.is_quadratic
    entries: dict[str, CellValue] = {"data": experiment.data.name}
    if not is_quadratic:
        entries["model"] = experiment.model.name or "mlp"
    entries["workers"] = given.background.num_workers
    charts = []
    if labels:
        sizes = [sum(row) for row in labels.counts]
        entries |= {
            "partition": labels.scheme,
            "examples": sum(sizes),
            "examples per worker": Markup("{} to {}").format(number(min(sizes)), number(max(sizes))),
        }
        charts.append(_partition(labels))
    if experiment.data.shift:
        entries["shift"] = ", ".join(str(text).replace("=", " ") for text in experiment.data.shift)
    remarks = ["Quadratics: the workers hold matrices, not examples."] if is_quadratic else []
    return {"entries": entries, "charts": charts, "remarks": remarks}


def _partition(labels: LabelCounts) -> Chart:
    counts = labels.counts[:MOST_WORKERS]
    more = f" The first {len(counts)} of {len(labels.counts):,} workers." if len(counts) < len(labels.counts) else ""
    by_label = [[row[label] for row in counts] for label in range(len(labels.classes))]
    return heat_map(
        "partition",
        by_label,
        labels.classes,
        [str(worker) for worker in range(len(counts))],
        title="Examples of each label, by worker" if len(labels.classes) > 1 else "Examples by worker",
        row_label="label",
        column_label="worker",
        note=f"The stronger the colour, the more examples; the bars are sums.{more}",
    )


SECTION = Section("federation", "The federation", ("run", "measurement", "plan", "sweep"), _show, _TEMPLATE)
