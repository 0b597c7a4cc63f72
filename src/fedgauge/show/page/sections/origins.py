"""Where heterogeneity comes from: the workers and the parameters that contribute most to zeta and L_h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.measurement.parts import Parts
from fedgauge.show.page.chart import Chart
from fedgauge.show.page.estimates import symbol_cell
from fedgauge.show.page.grids import heat_map
from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.page.sections.federation import MOST_WORKERS
from fedgauge.show.results.reading import parts_of
from fedgauge.show.web.elements import CellValue
from fedgauge.show.web.writing import percent

_HEADS = ("", "value", "largest layer", "largest worker", "stand out")
_TEMPLATE = """\
{{ table(heads, rows, "cards") }}{{ notes(remarks) }}
<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>
"""


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    measurement = given.found.measurement
    parts = parts_of(measurement) if measurement else ()
    if measurement is None or not parts:
        return None
    reading = measurement.reading("parts")
    return {
        "heads": _HEADS,
        "rows": [_row(part) for part in parts],
        "remarks": reading.notes if reading else (),
        "charts": [_chart(part) for part in parts],
    }


def _row(part: Parts) -> list[CellValue]:
    block, worker = int(part.by_block.argmax()), int(part.by_worker.argmax())
    return [
        symbol_cell(part.symbol),
        part.total**0.5,
        f"{part.blocks[block]}, {percent(float(part.by_block[block]))}",
        f"worker {worker}, {percent(float(part.by_worker[worker]))}",
        ", ".join(f"worker {worker}" for worker in part.outliers) or "none",
    ]


def _chart(part: Parts) -> Chart:
    number = len(part.weights)
    kept = sorted(sorted(range(number), key=part.by_worker.tolist().__getitem__, reverse=True)[:MOST_WORKERS])
    more = f" The {len(kept)} of {number:,} workers with the largest parts." if len(kept) < number else ""
    name = {"zeta_rms": "gradient divergence ζ²", "L_h": "drift L_h²"}.get(part.symbol, part.symbol)
    return heat_map(
        f"parts-{part.symbol}",
        part.shares[kept].T.tolist(),
        part.blocks,
        [str(worker) for worker in kept],
        title=f"Where {name} comes from",
        row_label="layer",
        column_label="worker",
        note=f"Shares of the whole, which add up; the bars are sums.{more}",
        share=True,
        marked=[kept.index(worker) for worker in part.outliers if worker in kept],
    )


SECTION = Section("origins", "Where heterogeneity comes from", ("measurement",), _show, _TEMPLATE)
