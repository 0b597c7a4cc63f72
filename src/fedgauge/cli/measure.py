"""The command measure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_run_or_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment

if TYPE_CHECKING:
    from fedgauge.measurement.values import Measurement

_PASSES = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*passes")


def _spend(text: str | None) -> dict[str, float]:
    """What may be spent, as a number of seconds or of passes."""
    if text is None:
        return {}
    match = _PASSES.fullmatch(text.strip())
    return {"passes": float(match[1])} if match else {"seconds": options.seconds("spend", text, "or 40passes")}


@everyday("gamma", "model", "workers", "percent", "local_steps", "at", "readings", "spend", "out", "plot", "json")
@takes_run_or_experiment
def measure(
    experiment: Experiment,
    run: Path | None,
    at: Annotated[
        Path | None,
        options.at("Measure", "the final model of the run; without a run, a model trained until it nearly converges"),
    ] = None,
    readings: Annotated[
        str | None,
        typer.Option(help="Ways to measure, separated by commas; see the guide \\[default: the usual ones]."),
    ] = None,
    trajectory_rounds: Annotated[int, typer.Option(help="Number of rounds of the trajectory that is measured.")] = 10,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds: runs of the trajectory, each with its own mini-batches.")
    ] = 3,
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
    spend: Annotated[
        str | None,
        typer.Option(help="Stop after this time or number of passes over the data, such as 60s, 5m or 40passes."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results: measure.json, the directions and the picture.")
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Measure L_h, L_g, L_tilde, zeta and sigma of a federation, along a run and from the curvature at a model.

    Example: fedgauge measure digits --percent 50 --gamma 0.1 --local-steps 10
    Example: fedgauge measure runs/first --spend 60s --out measured
    Example: fedgauge theory bound nonconvex --values measured/measure.json I=10 R=100 N=10 gamma=0.001 F=2
    """
    from fedgauge.base.errors import InterruptedCommandError
    from fedgauge.show import console

    options.check_plot(plot, made=out)
    if out:
        options.check_directory(out)
    options.allow_user_modules()
    names = tuple(name.strip() for name in (readings or "").split(",") if name.strip())
    # Imported here, because the imports take seconds.
    with console.steps() as progress:
        from fedgauge.measurement.session import MeasureOptions
        from fedgauge.measurement.session import measure as take
        from fedgauge.simulation.experiment.prepare import prepare
        from fedgauge.simulation.runs.checkpoints import read_model

        chosen = MeasureOptions(names, trajectory_rounds, seeds, near, most, tolerance, part, **_spend(spend))
        setup = prepare(experiment)
        if run and (run / "start.safetensors").exists():
            setup = replace(setup, start=read_model(run / "start.safetensors", setup.federation))
        model, origin = None, "given"
        place = at or run
        path = options.model_file(place) if place else None
        if path:
            model, origin = read_model(path, setup.federation), str(path)
        from fedgauge.show import files

        def keep(so_far: Measurement) -> None:
            if out:
                files.write(so_far, out)

        measurement = take(setup, model=model, origin=origin, options=chosen, progress=progress, keep=keep)

    from fedgauge.show.views import view

    if out:
        files.save(measurement, out)
    if plot:
        measurement.plot(plot)
    if json:
        options.print_json(measurement.to_json())
    else:
        console.show(view(measurement))
        if out:
            say(f"Written: {out}")
    if not measurement.complete:
        why = next((note for reading in measurement.readings for note in reading.notes if not reading.complete), "")
        if "interrupted" in why:
            raise InterruptedCommandError(why)
        say(f"fedgauge: {why}", error=True)
