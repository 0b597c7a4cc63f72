"""The command evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import experiment_from, experiment_of


def evaluate(
    run: options.Run,
    at: Annotated[Path | None, options.at("Evaluate", "the final model of the run")] = None,
    data: options.Data = None,
    out: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    json: options.Json = False,
) -> None:
    """Evaluate the model of a run on each worker's own examples: loss and accuracy, quantiles and the worst 10%.

    Example: fedgauge runs evaluate runs/first
    Example: fedgauge runs evaluate runs/first --out workers.json
    Example: fedgauge report runs/first --evaluation workers.json
    """
    from fedgauge.show.terminal import console

    if out:
        options.check_file(out)
    options.allow_user_modules()
    with console.steps() as progress:
        from fedgauge.base.errors import InputError
        from fedgauge.measurement.worker_evaluation import evaluate_workers
        from fedgauge.simulation.experiment.prepare import prepare
        from fedgauge.simulation.runs.checkpoints import read_model

        if not (run / "settings.json").is_file():
            raise InputError(f"There is no run in {run}; name the directory of a run that was saved with --out.")
        if not at and not (run / "model.safetensors").exists():
            raise InputError(
                f"The run in {run} has not ended, so it has no final model; resume it, or name one by --at."
            )
        place = None if data is None else str(data)
        setup = prepare(experiment_from({"source": experiment_of(run), "data": place}))
        model = read_model(options.model_file(at or run), setup.federation)
        evaluation = evaluate_workers(setup.federation, model, progress)
    result = evaluation.to_json()
    if out:
        from fedgauge.base.files import write_json

        write_json(out, result)
    if json:
        options.print_json(result)
        return
    from fedgauge.show.views import view

    console.show(view(evaluation))
    if out:
        say(f"Written: {out}")
