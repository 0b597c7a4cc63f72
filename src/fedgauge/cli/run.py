"""The commands simulate and demo, and the lists of algorithms and symbols."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import takes_experiment
from fedgauge.cli.help import everyday
from fedgauge.simulation.experiment.config import Experiment

if TYPE_CHECKING:
    from fedgauge.values import Trace


def algorithms(json: options.Json = False) -> None:
    """List the algorithms and their parameters.

    Example: fedgauge theory algorithms
    """
    from fedgauge.algorithms import ALGORITHMS, parameters_of

    rows = {name: (parameters_of(name), (make.__doc__ or "").split("\n")[0]) for name, make in ALGORITHMS.items()}
    if json:
        options.print_json({name: {"parameters": takes, "summary": says} for name, (takes, says) in rows.items()})
    else:
        from fedgauge.show import console

        console.table(
            "Algorithms",
            ("name", "parameters", "what it does"),
            [(name, " ".join(takes), says) for name, (takes, says) in rows.items()],
        )
        say(
            "Workers run plain SGD unless --optimiser, --local-momentum, --weight-decay or --clip says otherwise, and"
            " --gamma-schedule and --eta-schedule change the rates; see 'fedgauge simulate --help'."
        )


def symbols(json: options.Json = False) -> None:
    """List the symbols, what they mean and where the paper defines them.

    Example: fedgauge theory symbols
    """
    from fedgauge.base.symbols import SYMBOLS

    if json:
        options.print_json(
            {s.name: {"latex": s.latex, "meaning": s.meaning, "defined": s.defined} for s in SYMBOLS.values()}
        )
    else:
        from fedgauge.show import console

        rows = [(s.name, s.meaning, s.defined) for s in SYMBOLS.values()]
        console.table("Symbols", ("symbol", "meaning", "defined in"), rows)


@everyday("gamma", "local_steps", "rounds", "model", "algorithm", "workers", "percent", "goal", "out", "plot", "json")
@takes_experiment
def simulate(
    experiment: Experiment,
    out: Annotated[Path | None, typer.Option(help="Save the run in this directory.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    at: Annotated[Path | None, options.at("Start", "drawn with the seed")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write a TensorBoard event file to this directory while running.")
    ] = None,
    observer: options.Observer = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Run an experiment: a TOML file, a quadratic federation or a data set. Options override the file.

    Example: fedgauge simulate digits --model mlp --percent 50 --gamma 0.1 --local-steps 10 --out runs/first
    Example: fedgauge simulate fed.json --algorithm fedavg --gamma 0.05 --local-steps 10 --rounds 200
    Example: fedgauge simulate runs/first/experiment.toml --gamma 0.05 --out runs/second
    """
    from fedgauge.base.errors import InputError, InterruptedCommandError
    from fedgauge.show import console

    if resume and out is None:
        raise InputError("--resume needs --out, the directory of the run to resume.")
    options.check_plot(plot, made=out)
    options.allow_user_modules()
    if tensorboard:
        options.check_directory(tensorboard, "tensorboard")
    trace = _ended(experiment, out) if resume and out and not at else None
    num_workers, parameters, described = None, None, experiment.to_json()
    if trace is None:
        with console.run_progress() as progress:
            from fedgauge.simulation.experiment.prepare import execute, prepare
            from fedgauge.simulation.loop import InterruptedRunError
            from fedgauge.simulation.options import Keep
            from fedgauge.simulation.runs.checkpoints import read_model
            from fedgauge.simulation.runs.observers import make_observer, watching
            from fedgauge.simulation.runs.trackers import TensorBoard

            setup = prepare(experiment)
            num_workers, parameters = setup.num_workers, setup.partition.parameters if setup.partition else None
            described = dict(setup.experiment)
            first = read_model(options.model_file(at), setup.federation) if at else None
            observers = [make_observer(name, experiment.to_json()) for name in observer or []]
            observers += [TensorBoard(tensorboard)] if tensorboard else []
            observers.append(progress(experiment.algorithm.name, experiment.run.rounds))
            with watching(observers) as observe:
                try:
                    keep = Keep(out, resume) if out else None
                    trace = execute(experiment, keep=keep, start=first, observer=observe, setup=setup)
                except InterruptedRunError as interrupt:
                    trace = interrupt.trace
    if plot:
        trace.plot(plot)
    if json:
        options.print_json(trace.to_json())
    else:
        from fedgauge.show.views.runs import federation_line, view_of_trace

        federation = federation_line(described, num_workers, parameters)
        console.show(view_of_trace(trace, num_workers, federation))
        if out:
            say(f"The run is in {out}.")
    if trace.status == "stopped":
        remedy = (
            f"to resume the run in {out}, repeat the command with --resume" if out else "nothing was saved; use --out"
        )
        raise InterruptedCommandError(f"Interrupted in round {trace.stopped_at}; {remedy}.")


def _ended(experiment: Experiment, out: Path) -> Trace | None:
    """The run in a directory if it has ended; it is read at once, without waiting for the data and for torch."""
    # What a data set in files holds is only known once it is loaded.
    if not experiment.data.name.endswith((".json", "digits", "text")):
        return None
    from fedgauge.simulation.experiment.config import ended_run

    return ended_run(experiment, out)


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the runs, the pictures and the JSON result.")] = Path("demo"),
    json: options.Json = False,
) -> None:
    """Show in half a minute what limits local steps: L_h on quadratics, and on a network what the gauge measures.

    Example: fedgauge demo --out demo
    """
    from fedgauge.base.files import write_json
    from fedgauge.show import console
    from fedgauge.show.results.reading import DemoResult

    options.check_directory(out)
    with console.run_progress() as progress:
        from fedgauge.cli.demo import digits, quadratics

        result: dict[str, Any] = {"digits": digits.run(out / "runs", progress)}
    with console.progress() as bar:
        task = bar.add_task("quadratics", total=None)
        result |= quadratics.run(lambda done, total: bar.update(task, completed=done, total=total))
    with console.steps() as steps:
        constants = digits.measure(out, steps)
        gauged = digits.gauge(out, steps)
    result = DemoResult.from_json({**result, "sentence": gauged.sentence}).to_json()
    write_json(out / "result.json", result)
    pictures = [*digits.save(result["digits"], out), *quadratics.save(result, out)]
    best = out / "runs" / f"I={digits.LOCAL_STEPS[-1]}"
    from fedgauge.base.files import write_page
    from fedgauge.show.page.build import build
    from fedgauge.show.results.background import background_of
    from fedgauge.show.results.reading import read_results
    from fedgauge.show.views.gauges import view_of_gauge

    gauge = out / "gauged" / "gauge.json"
    files = {"--measure": constants, "--gauge": gauge, "--out": out / "report.html"}
    options_shown = [part for name, path in files.items() for part in (name, str(path))]
    command = shlex.join(["fedgauge", "report", str(best), *options_shown])
    results = read_results(best, {"measure": constants, "gauge": gauge})
    write_page(out / "report.html", build(results, background_of(results), command).html)
    if json:
        options.print_json(result)
        return
    digits.show(result["digits"])
    quadratics.show(result)
    say("Pictures: " + ", ".join(str(path) for path in pictures))
    say(f"Numbers: {out / 'result.json'}")
    runs = " ".join(shlex.quote(str(out / "runs" / f"I={steps}")) for steps in digits.LOCAL_STEPS)
    say(f"Runs: {out / 'runs'}; compare them with: fedgauge runs compare {runs}")
    experiment = shlex.quote(str(best / "experiment.toml"))
    say(f"Try: fedgauge simulate {experiment} --percent 90 --out runs/mine")
    say(f"Report, which begins with the answer below, to open in a browser: {out / 'report.html'}\n")
    console.show(view_of_gauge(gauged, using=digits.LOCAL_STEPS[-1]))
