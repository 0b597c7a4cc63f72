"""The command gauge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import parse, takes_run_or_any_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment

if TYPE_CHECKING:
    from fedgauge.algorithms.base import Algorithm
    from fedgauge.algorithms.cost import Cost
    from fedgauge.measurement.gauge.result import GaugeResult
    from fedgauge.simulation.setup import Setup


@everyday("gamma", "model", "workers", "percent", "cost", "measure_cost", "goal", "candidates", "out", "plot", "json")
@takes_run_or_any_experiment
def gauge(
    experiment: Experiment,
    run: Path | None,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="QUANTITY=VALUE", help="Compare down to this loss, as in loss=0.1 \\[default: where the run ends]."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the run \\[default: rounds times local steps]."),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="I,I,...",
            help="Numbers of local steps to try; by default 1, 16, 64 and so on, as far as the run is long enough.",
        ),
    ] = None,
    reference_gamma: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", help="Compare with synchronous training at this rate \\[default: the same gamma]."
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--extra-steps",
            help="Steps of each worker to spend beyond one run, for a more exact answer"
            " \\[default: none; twice the run's where it is too short to try several numbers within it].",
        ),
    ] = None,
    measure_cost: Annotated[
        bool,
        typer.Option(
            "--measure-cost",
            help="Find the cost of a round: times a local step on this machine, and asks for bandwidth and latency.",
        ),
    ] = False,
    over: Annotated[list[str] | None, options.over("Gauge at several values of gamma, as in gamma=0.03,0.1")] = None,
    at: Annotated[Path | None, options.at("Gauge only", "everywhere; along a run")] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Evaluate f on this many examples of each worker \\[default: all, or fewer where that would take"
            " most of the time]."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the results: gauge.json and the picture.")] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Answer how many local steps to take, by measuring how fast f falls with each number of them.

    One run changes between several numbers of local steps, so that the answer costs no more than training.
    Without --gamma, the rate at which synchronous training is fastest is searched for first.

    With --out, repeating the same command resumes a gauge that was interrupted.

    Example: fedgauge gauge digits --percent 50 --gamma 0.1 --cost 100
    Example: fedgauge gauge mine.npz --measure-cost
    Example: fedgauge gauge digits --gamma 0.1 --over gamma=0.03,0.1 --out rates
    Example: fedgauge gauge runs/first --at runs/first
    """
    from fedgauge.base.errors import InterruptedCommandError
    from fedgauge.measurement.gauge.gauge import gauge as take
    from fedgauge.measurement.gauge.preparation import read_goal
    from fedgauge.measurement.gauge.result import GaugeOptions
    from fedgauge.show import console

    options.check_plot(plot, made=out)
    if out:
        options.check_directory(out)
    options.allow_user_modules()
    price = None if experiment.run.cost is None else experiment.run.round_cost
    if measure_cost:
        price = _asked(price)
    value = read_goal(goal)
    local_steps = tuple(sorted(set(parse("candidates", tuple[int, ...], candidates)))) if candidates else None
    rates = options.values_over(over or [], ("gamma",)).get("gamma", [None])
    gauged: dict[float | None, GaugeResult] = {}
    with console.steps() as progress:
        chosen = GaugeOptions(local_steps, steps, budget, at is not None, sample)
        for rate in rates:
            source = _source(experiment if rate is None else experiment.changed({"gamma": rate}), run, at)
            gauged[rate] = take(
                source,
                goal=value,
                reference=None if reference_gamma is None else _synchronous(source, reference_gamma),
                cost=price,
                options=chosen,
                directory=_place(out, rate) / "parts" if out else None,
                progress=progress,
            )
            if not gauged[rate].complete:
                break
    from fedgauge.show import files, pictures
    from fedgauge.show.views.gauges import gauge_charts, view_of_gauge

    for rate, each in gauged.items():
        if out:
            files.save(each, _place(out, rate))
    if plot:
        pictures.draw(gauge_charts(list(gauged.values())), plot)
    if json:
        results = [each.to_json() for each in gauged.values()]
        options.print_json(results if over else results[0])
    else:
        for each in gauged.values():
            console.show(view_of_gauge(each))
        if out:
            say(f"Written: {out}")
    last = list(gauged.values())[-1]
    if not last.complete:
        raise InterruptedCommandError(last.notes[-1])


def _asked(given: Cost | None) -> Cost:
    """The cost of a round by the bandwidth and the latency that the user types; a local step is timed later."""
    from fedgauge.algorithms.cost import Cost
    from fedgauge.base.errors import InputError

    if given is not None:
        raise InputError("measure_cost finds the cost that you have given already; leave one of the two out.")
    questions = ("Bandwidth of the server, in megabytes per second", "Latency of a round, in seconds")
    try:
        bandwidth, latency = (typer.prompt(question, type=float, err=True) for question in questions)
    except typer.Abort:
        raise InputError(
            "measure_cost asks for bandwidth and latency; where nobody can answer, give cost='bandwidth=1e8,fixed=0.05'"
            " (bytes per second and seconds), and a local step is timed too."
        ) from None
    return Cost("measured", fixed=latency, bandwidth=1e6 * bandwidth)


def _source(experiment: Experiment, run: Path | None, at: Path | None) -> Experiment | Setup:
    """The experiment; as a set-up that starts from a model, if one is named or the run has its own first model."""
    start = run / "start.safetensors" if run else None
    if at is None and start is not None and start.exists():
        at = start
    if at is None:
        return experiment
    from fedgauge.simulation.experiment.prepare import prepare
    from fedgauge.simulation.runs.checkpoints import read_model

    setup = prepare(experiment)
    return replace(setup, start=read_model(options.model_file(at), setup.federation))


def _place(out: Path, rate: float | None) -> Path:
    """The directory for one rate, if several are gauged."""
    return out if rate is None else out / f"gamma={rate:g}"


def _synchronous(source: Experiment | Setup, gamma: float) -> Algorithm:
    """Synchronous training with the optimiser of an experiment's algorithm, at another rate."""
    from fedgauge.algorithms import make_algorithm
    from fedgauge.base.errors import positive
    from fedgauge.simulation.experiment.prepare import setup_of

    gamma = positive("reference_gamma", gamma)
    algorithm = setup_of(source, None).algorithm
    reference = algorithm.synchronous or algorithm
    return make_algorithm(reference.name, **{**reference.parameters, "gamma": gamma})
