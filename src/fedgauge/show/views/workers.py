"""How well a model serves each worker."""

from __future__ import annotations

from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.view import Cell, Table, View, counted_share, view
from fedgauge.values.display import counted


@view.register
def view_of_workers(found: WorkerEvaluation) -> View:
    """Mean, quantiles and the worst workers, and all workers in growing order."""
    summary, columns = found.summary(), {"loss": found.losses}
    columns |= {"accuracy": found.accuracies} if found.accuracies else {}
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
    rows = [[what, *(_cell(name, summary[name][what]) for name in summary)] for what in summary["loss"]]
    worst = found.worst_workers()[:10]
    examples = [found.examples] if found.examples else []
    numbers = [
        [str(worker), *(held[worker] for held in examples), *(_cell(name, columns[name][worker]) for name in columns)]
        for worker in worst
    ]
    heads = ("worker", *["examples"] * bool(examples), *columns)
    title = f"{counted(len(found.losses), 'worker')}, each on its own training examples"
    first = summary.get("accuracy")
    if first:
        sentence = f"Accuracy by worker: {first['mean']:.1%} on average, {first['worst 10%']:.1%} for the worst 10%."
    else:
        first = summary["loss"]
        sentence = f"Loss by worker: {first['mean']:.4g} on average, {first['worst 10%']:.4g} for the worst 10%."
    tables = Table(("over workers", *summary), rows, title), Table(heads, numbers, "The worst workers")
    notes = [f"Each worker on its own training examples. The worst 10%, worst first: {', '.join(map(str, worst))}."]
    return View((sentence,), tables=tables, charts=charts, notes=notes)


def _cell(name: str, value: float) -> Cell:
    return value if name == "loss" else counted_share(value)
