"""The federation: its data, its model, and who has how many examples of which label."""

from __future__ import annotations

from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.views.partitions import labels_chart
from fedgauge.show.views.view import Cell, Interval, View


def _show(given: ReportInput) -> View | None:
    experiment, labels = given.background.experiment, given.background.labels
    if experiment is None:
        return None
    is_quadratic = experiment.data.is_quadratic
    entries: dict[str, Cell] = {"data": experiment.data.name}
    if not is_quadratic:
        entries["model"] = experiment.model.name or "mlp"
    entries["workers"] = given.background.num_workers
    charts = []
    if labels:
        sizes = [sum(row) for row in labels.counts]
        entries |= {
            "partition": labels.scheme,
            "examples": sum(sizes),
            "examples per worker": Interval(min(sizes), max(sizes)) if min(sizes) < max(sizes) else sizes[0],
        }
        charts.append(labels_chart(labels.counts, labels.classes))
    if experiment.data.shift:
        entries["shift"] = ", ".join(str(text).replace("=", " ") for text in experiment.data.shift)
    remarks = ["Quadratics: the workers hold matrices, not examples."] if is_quadratic else []
    return View(facts=entries, charts=charts, notes=remarks)


SECTION = Section("federation", "The federation", ("run", "gauge", "measurement", "plan", "sweep"), _show)
