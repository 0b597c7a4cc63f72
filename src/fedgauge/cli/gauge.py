"""The command gauge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.experiment.config import Experiment


@takes_experiment
def gauge(
    experiment: Experiment,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="loss=VALUE",
            help="Where the way down ends \\[default: where the base run ends].",
            show_default=False,
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            help="Recommend local steps for this cost of a round: cross-device, cross-silo or local, or numbers, as in"
            " fixed=1,bandwidth=1e6,step=0.01.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Local steps are affordable if at least this fraction of them counts.")
    ] = 0.8,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the base run \\[default: rounds times local steps].", show_default=False),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="I,I,...",
            help="Measure these numbers of local steps \\[default: about four, chosen by what is seen].",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Steps of each worker to spend beyond the base run"
            " \\[default: twice those of the base run, or half if it has more than 5,000].",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for gauge.json and the picture.")] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Measure how many local steps a federation affords: how many of them count, and how many are lost to drift.

    A base run with one local step per round is the reference. Short probes from places along it then show how far I
    local steps get.

    With --out, repeating the same command resumes a gauge that was interrupted.

    Example: fedgauge gauge digits --percent 50 --gamma 0.1
    Example: fedgauge gauge experiment.toml --cost cross-device --threshold 0.7 --out gauged
    """
    from fedgauge.errors import InterruptedCommandError
    from fedgauge.pace.cost import Cost
    from fedgauge.report.terminal import console

    options.check_plot(plot, made=out)
    if out:
        options.check_directory(out)
    options.allow_own_modules()
    price = None if cost is None else Cost.parse(cost)
    with console.steps() as progress:
        from fedgauge.measurement.gauge.gauge import GaugeOptions
        from fedgauge.measurement.gauge.gauge import gauge as take

        chosen = GaugeOptions(_numbers(measure), threshold, steps, budget)
        parts = out / "parts" if out else None
        found = take(experiment, goal=_loss(goal), cost=price, options=chosen, directory=parts, progress=progress)
    from fedgauge.report.terminal import gauges

    if out:
        gauges.save(found, out)
    if plot:
        gauges.draw(found, plot)
    if json:
        options.print_json(found.to_json())
    else:
        gauges.show(found)
        if out:
            print(f"Written: {out}")
    if not found.complete:
        raise InterruptedCommandError(found.notes[-1])


def _loss(text: str | None) -> float | None:
    """The value of a goal such as loss=0.3."""
    from fedgauge.errors import InputError

    if text is None:
        return None
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        if name == "loss":
            return float(value)
    except ValueError:
        pass
    raise InputError(f"--goal of the gauge must be a loss, as in loss=0.3, not {text!r}.")


def _numbers(text: str | None) -> tuple[int, ...] | None:
    """Numbers of local steps, separated by commas."""
    from fedgauge.errors import InputError

    if text is None:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"--measure must be whole numbers separated by commas, as in 4,16,64, not {text!r}.") from None
