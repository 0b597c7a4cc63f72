"""The command measure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgauge.cli import options
from fedgauge.cli.experiments import takes_run_or_experiment
from fedgauge.experiment.config import Experiment
from fedgauge.system.terminal import say

if TYPE_CHECKING:
    from fedgauge.measurement.reading import Measurement

_PASSES = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*passes")


def _budget(text: str | None) -> dict[str, float]:
    """A budget as a number of seconds or of passes."""
    if text is None:
        return {}
    found = _PASSES.fullmatch(text.strip())
    return {"passes": float(found[1])} if found else {"seconds": options.seconds("budget", text, "or 40passes")}


@takes_run_or_experiment
def measure(
    experiment: Experiment,
    run: Path | None,
    at: Annotated[
        Path | None,
        typer.Option(
            help="Measure at this model, a .safetensors or .pt file"
            " \\[default: the final model of the run; without a run, a model trained until it nearly converges].",
            show_default=False,
        ),
    ] = None,
    readings: Annotated[
        str | None,
        typer.Option(help="Ways to measure, separated by commas; see the guide \\[default: the usual ones]."),
    ] = None,
    trajectory_rounds: Annotated[int, typer.Option(help="Number of rounds of the trajectory that is measured.")] = 10,
    seeds: Annotated[int, typer.Option(help="Number of runs of the trajectory, each with its own mini-batches.")] = 3,
    near: Annotated[
        float, typer.Option(help="Without a model, train until ten rounds lower f by less than this fraction.")
    ] = 0.01,
    most: Annotated[int, typer.Option(help="Without a model, train for at most this many rounds.")] = 1000,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Relative tolerance of the directions of curvature \\[default: 1e-3; 1e-9 in float64]."),
    ] = None,
    part: Annotated[
        float, typer.Option(help="Fraction of every worker's data that the reading 'sampled' uses.")
    ] = 0.05,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Stop after this time or number of passes with the results so far, such as 60s, 5m or 40passes."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for measure.json, the directions and the picture.")
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Measure L_h, L_g, L_tilde, zeta and sigma of a federation, along a run and from the curvature at a model.

    Example: fedgauge measure digits --percent 50 --gamma 0.1 --local-steps 10
    Example: fedgauge measure runs/first --budget 60s --out measured
    Example: fedgauge bound nonconvex --values measured/measure.json I=10 R=100 N=10 gamma=0.001 F=2
    """
    from fedgauge.errors import InterruptedCommandError
    from fedgauge.report.terminal import console

    options.check_plot(plot, made=out)
    if out:
        options.check_directory(out)
    options.allow_own_modules()
    if experiment.model.name and experiment.model.name.endswith((".safetensors", ".pt")):
        # A file of parameters does not name an architecture: use the default one.
        at = at or Path(experiment.model.name)
        experiment = replace(experiment, model=replace(experiment.model, name=None))
    names = tuple(name.strip() for name in (readings or "").split(",") if name.strip())
    # Imported here, because the imports take seconds.
    with console.steps() as progress:
        from fedgauge.experiment.prepare import prepare
        from fedgauge.measurement.measuring import MeasureOptions
        from fedgauge.measurement.measuring import measure as take
        from fedgauge.runs.models import read_model

        chosen = MeasureOptions(names, trajectory_rounds, seeds, near, most, tolerance, part, **_budget(budget))
        setup = prepare(experiment)
        if run and (run / "start.safetensors").exists():
            setup = replace(setup, start=read_model(run / "start.safetensors", setup.federation))
        model, origin = None, "given"
        path = at or (run / "model.safetensors" if run else None)
        if path:
            model, origin = read_model(path, setup.federation), str(path)
        from fedgauge.report.terminal import measurements

        def keep(so_far: Measurement) -> None:
            if out:
                measurements.save_readings(so_far, out)

        found = take(setup, model=model, origin=origin, options=chosen, progress=progress, keep=keep)

    if out:
        measurements.save(found, out)
    if plot:
        measurements.draw(found, plot)
    if json:
        options.print_json(found.to_json())
    else:
        measurements.show(found)
        if out:
            say(f"Written: {out}")
    if not found.complete:
        why = next((note for reading in found.readings for note in reading.notes if not reading.complete), "")
        if "interrupted" in why:
            raise InterruptedCommandError(why)
        say(f"fedgauge: {why}", error=True)
