"""The command that runs an experiment with many values and seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import command_line, say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment


@everyday("over", "seeds", "gamma", "model", "local_steps", "rounds", "workers", "percent", "out", "jobs", "json")
@takes_experiment
def sweep(
    experiment: Experiment,
    over: Annotated[list[str] | None, options.over("Run with several values of a key of the experiment")] = None,
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

    Example: fedgauge runs sweep experiment.toml --over local_steps=1,5,20 --over percent=50,75 --seeds 5 --out swept
    """
    from fedgauge.base.errors import InputError, InterruptedCommandError, count

    if out is None:
        raise InputError("sweep needs --out, the directory for its runs; name a new one.")
    options.check_directory(out)
    options.allow_user_modules()
    if jobs is not None:
        count("jobs", jobs)
    values = options.values_over(over or [])
    from fedgauge.show import files
    from fedgauge.show.terminal import console
    from fedgauge.show.views.sweeps import view_of_sweep
    from fedgauge.simulation.experiment.sweep import Sweep, run_sweep

    planned = Sweep(experiment, values, seeds)
    with console.progress() as bar:
        task = bar.add_task("starting", total=None)

        def progress(done: int, total: int, ended: int) -> None:
            runs = f"{ended} of {len(planned.cells)} runs, rounds"
            bar.update(task, completed=done, total=total, description=runs)

        result = run_sweep(planned, out / "runs", jobs, progress)
    if result is None:
        raise InterruptedCommandError(f"Interrupted; repeat the same command to resume the runs in {out}.")
    result = replace(result, command=command_line())
    written = files.save(result, out)
    if json:
        options.print_json(result.to_json())
    else:
        console.show(view_of_sweep(result))
        say("Written: " + ", ".join(map(str, written)))
