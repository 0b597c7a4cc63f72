"""The command evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options
from fedgauge.cli.experiments import takes_run_or_experiment
from fedgauge.experiment.config import Experiment
from fedgauge.system.terminal import say


@takes_run_or_experiment
def evaluate(
    experiment: Experiment,
    run: Path | None,
    at: Annotated[
        Path | None,
        typer.Option(
            help="Evaluate this model, a .safetensors or .pt file \\[default: the final model of the run; without a"
            " run, the first model].",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    json: options.Json = False,
) -> None:
    """Evaluate a model on each worker's own examples: loss and accuracy by worker, quantiles and the worst 10%.

    Example: fedgauge evaluate runs/first
    Example: fedgauge evaluate runs/first --out workers.json
    Example: fedgauge report runs/first --workers workers.json
    """
    from fedgauge.report.terminal import console

    if out:
        options.check_file(out)
    options.allow_own_modules()
    with console.steps() as progress:
        from fedgauge.errors import InputError
        from fedgauge.experiment.prepare import prepare
        from fedgauge.measurement.by_worker import evaluate_workers
        from fedgauge.runs.models import read_model

        path = at or (run / "model.safetensors" if run else None)
        if run and not at and not (run / "model.safetensors").exists():
            raise InputError(f"The run in {run} has not ended, so it has no final model; resume it, or name a model.")
        setup = prepare(experiment)
        model = read_model(path, setup.federation) if path else setup.first_model
        found = evaluate_workers(setup.federation, model, progress)
    result = found.to_json()
    if out:
        from fedgauge.system.files import write_json

        write_json(out, result)
    if json:
        options.print_json(result)
        return
    summary = found.summary()
    rows = [
        (
            what,
            *(
                console.number(summary[name][what]) if name == "loss" else f"{summary[name][what]:.2%}"
                for name in summary
            ),
        )
        for what in summary["loss"]
    ]
    title = f"{len(found.losses)} workers, each on its own training examples"
    console.table(title, ("over workers", *summary), rows)
    worst = [
        (
            str(worker),
            *([str(found.examples[worker])] if found.examples else []),
            console.number(found.losses[worker]),
            *([f"{found.accuracies[worker]:.2%}"] if found.accuracies else []),
        )
        for worker in found.worst_workers()[:10]
    ]
    console.table("The worst workers", ("worker", *["examples"] * bool(found.examples), *summary), worst)
    if out:
        say(f"Written: {out}")
