"""The paper's MLP on scikit-learn's digits, divided among ten workers, with FedAvg at several I.

Half of each worker's data has one label, so the workers' gradients differ a lot. Yet more local steps make more
progress per round. How many of them count, the gauge measures: on networks no constant tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgauge.show import console, files, pictures
from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.partitions import labels_chart
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.values import Round

if TYPE_CHECKING:
    from fedgauge.measurement.gauge.result import GaugeResult

LOCAL_STEPS = (1, 5, 20)
ROUNDS, TARGET = 60, 0.9
COST, CANDIDATES = 100, (4, 16, 64)
"""What a round costs in the gauge, in local steps, and the numbers of local steps that it tries."""
EXPERIMENT = {
    "source": "digits",
    "scheme": "paper",
    "workers": 10,
    "percent": 50,
    "model": "mlp",
    "algorithm": "fedavg",
    "gamma": 0.1,
    "eta": 2,
    "rounds": ROUNDS,
    # A round takes a few milliseconds, which is too little to divide among processes.
    "processes": 1,
}


def run(directory: Path, progress: Callable[[str, int], Callable[[int, Round | None], None]]) -> dict[str, Any]:
    """Run every I and save each run in its own directory; runs that are finished already are read."""
    from fedgauge.simulation.experiment.prepare import execute, prepare
    from fedgauge.simulation.options import Keep

    base = Experiment.of(EXPERIMENT)
    setup = prepare(base)
    runs = []
    for local_steps in LOCAL_STEPS:
        trace = execute(
            base.changed({"local_steps": local_steps}),
            setup=setup,
            keep=Keep(directory / f"I={local_steps}", resume=True),
            observer=progress(f"digits, I = {local_steps}", ROUNDS),
        )
        reached = [record.round for record in trace.rounds if (record.accuracy or 0.0) >= TARGET]
        runs.append(
            {
                "local_steps": local_steps,
                "rounds": [record.round for record in trace.rounds],
                "loss": trace.losses.tolist(),
                "accuracy": trace.accuracies.tolist(),
                "rounds_to_target": reached[0] if reached else None,
                "L_h_seen": max(record.L_h_ratio or 0.0 for record in trace.rounds),
                "seconds": trace.seconds[-1],
            }
        )
    assert setup.dataset is not None
    assert setup.partition is not None
    counts = setup.partition.label_counts(setup.dataset.train_labels, setup.dataset.num_classes)
    return {
        "experiment": base.to_json(),
        "target": TARGET,
        "label_counts": counts.tolist(),
        "classes": list(setup.dataset.classes),
        "runs": runs,
    }


def gauge(directory: Path, progress: Callable[[str, int, int | None], None]) -> GaugeResult:
    """Gauge how many local steps to take, and write the result beside the runs."""
    from fedgauge.measurement.gauge.gauge import gauge as take
    from fedgauge.measurement.gauge.result import GaugeOptions

    # As many steps as the run with the most local steps takes.
    options = GaugeOptions(CANDIDATES, steps=ROUNDS * LOCAL_STEPS[-1])
    result = take(Experiment.of(EXPERIMENT), cost=COST, options=options, progress=progress)
    files.save(result, directory / "gauged")
    return result


def measure(directory: Path, progress: Callable[[str, int, int | None], None]) -> Path:
    """Measure the constants at the final model of the run with the most local steps, and write them beside the runs."""
    from fedgauge.measurement.session import MeasureOptions
    from fedgauge.measurement.session import measure as take
    from fedgauge.simulation.experiment.prepare import prepare
    from fedgauge.simulation.runs.checkpoints import read_model
    from fedgauge.simulation.runs.reader import read_run

    run, out = directory / "runs" / f"I={LOCAL_STEPS[-1]}", directory / "measured"
    experiment = Experiment.from_json(read_run(run).experiment)
    setup, model = prepare(experiment), run / "model.safetensors"
    # A few rounds with one seed are enough here; the curvature needs no rounds at all.
    measurement = take(
        setup,
        model=read_model(model, setup.federation),
        origin=str(model),
        options=MeasureOptions(rounds=3, seeds=1),
        progress=progress,
    )
    return files.save(measurement, out)[0]


def show(result: Mapping[str, Any]) -> None:
    """Print a table with one line for each I."""
    rows = [
        (
            str(run["local_steps"]),
            "–" if run["rounds_to_target"] is None else str(run["rounds_to_target"]),
            console.number(run["loss"][-1]),
            f"{run['accuracy'][-1]:.1%}",
            console.number(run["L_h_seen"]),
            f"{run['seconds']:.1f}",
        )
        for run in result["runs"]
    ]
    head = ("I", f"rounds to {TARGET:.0%}", f"loss after {ROUNDS}", "accuracy", "L_h measured (lower)", "seconds")
    console.table("digits: MLP, 10 workers, half of each worker's data has one label", head, rows)


def save(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw the partition, and loss and accuracy against rounds."""
    written = [directory / name for name in ("partition.png", "digits.png")]
    pictures.draw([labels_chart(result["label_counts"], result["classes"], "digits: half of one label")], written[0])
    charts = []
    for key, label, log in (("loss", "training loss f", True), ("accuracy", "test accuracy", False)):
        series = [
            Series(f"I = {run['local_steps']}", run["rounds"], run[key], number)
            for number, run in enumerate(result["runs"])
        ]
        charts.append(LineChart(key, series, "digits, MLP, 10 workers", "round", label, log=log))
    pictures.draw(charts, written[1])
    return written
