"""The command that runs an experiment with many values and seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.experiment.config import Experiment
from fedgauge.system.command_line import command_line
from fedgauge.system.terminal import say


@takes_experiment
def sweep(
    experiment: Experiment,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,VALUE", help="A key of the experiment and its values; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, counted up from --seed.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the runs, the pictures and result.json; required.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of runs at the same time \\[default: one per core].")] = None,
    json: options.Json = False,
) -> None:
    """Run an experiment for every combination of values and every seed.

    Every run is saved in OUT/runs, so repeating the same command resumes an interrupted sweep. There is a picture for
    each combination of all keys except the first, with a line for each value of the first.

    Example: fedgauge sweep docs/results/mnist.toml --over local_steps=1,5,20 --over percent=50,75 --seeds 5 --out mnist
    """
    from fedgauge.errors import InputError, InterruptedCommandError, count

    if out is None:
        raise InputError("sweep needs --out, the directory for its runs; name a new one.")
    options.check_directory(out)
    options.allow_own_modules()
    if jobs is not None:
        count("jobs", jobs)
    values = options.values_over(over or [])
    from fedgauge.experiment.sweep import Sweep, run_sweep
    from fedgauge.report.terminal import console, sweeps
    from fedgauge.system.files import write_json

    planned = Sweep(experiment, values, seeds)
    with console.progress() as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int, ended: int) -> None:
            runs = f"{ended} of {len(planned.cells)} runs, rounds"
            bar.update(task, completed=done, total=total, description=runs)

        found = run_sweep(planned, out / "runs", jobs, progress)
    if found is None:
        raise InterruptedCommandError(f"Interrupted; repeat the same command to resume the runs in {out}.")
    result = replace(found, command=command_line()).to_json()
    write_json(out / "result.json", result)
    pictures = sweeps.draw_sweep(result, out)
    if json:
        options.print_json(result)
    else:
        sweeps.show_sweep(result)
        say("Written: " + ", ".join(str(path) for path in (out / "result.json", *pictures)))
