"""Commands for saved runs: list, show, compare, check, export and evaluate them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.experiments import experiment_from, experiment_of

if TYPE_CHECKING:
    from fedgauge.simulation.runs.reader import FoundRun


app = typer.Typer(name="runs", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Show, compare, check, export and evaluate saved runs.

    Example: fedgauge runs list
    """


@app.command("list")
def list_(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Look in this directory and below.")] = Path(
        "runs"
    ),
    json: options.Json = False,
) -> None:
    """List the runs below a directory, and how far each one is.

    Example: fedgauge runs list runs
    """
    from fedgauge.show import console
    from fedgauge.show.views.comparisons import list_view
    from fedgauge.show.views.runs import outline
    from fedgauge.simulation.runs.reader import find_runs

    saved = find_runs(directory)
    if json:
        options.print_json([outline(run) for run in saved])
    else:
        console.show(list_view(saved, directory))


@app.command()
def show(run: options.Run, json: options.Json = False) -> None:
    """Show the settings of a run, its records so far and how it ended.

    Example: fedgauge runs show runs/first
    """
    from fedgauge.show import console
    from fedgauge.show.views.runs import view_of_run
    from fedgauge.simulation.runs.reader import read_run

    saved = read_run(run)
    if json:
        options.print_json(saved.to_json())
    else:
        console.show(view_of_run(saved))


@app.command()
def compare(
    run: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The directories of the runs.")],
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Compare runs: show how their settings differ and how far each one got, and draw their curves in one picture.

    Example: fedgauge runs compare runs/first runs/second --plot compare.png
    """
    from fedgauge.show import console
    from fedgauge.show.pictures import draw
    from fedgauge.show.views.comparisons import comparison_view
    from fedgauge.show.views.runs import outline
    from fedgauge.simulation.runs.reader import read_run

    options.check_plot(plot)
    saved = [read_run(path) for path in run]
    shown = comparison_view(saved)
    if plot:
        draw(shown.charts, plot)
    if json:
        options.print_json([outline(each) for each in saved])
    else:
        console.show(shown)
        if plot:
            say(f"Written: {plot}")


def _warn(runs: Sequence[FoundRun]) -> None:
    """Say which files could not be read or are not what the run wrote, where the output does not."""
    for run in runs:
        if run.note:
            say(f"fedgauge: {run.path}: {run.note}.", error=True)


@app.command()
def check(
    run: options.Run,
    values: Annotated[
        Path,
        typer.Option(help="JSON file of constants, written by 'fedgauge measure --out' or 'theory constants --json'."),
    ],
    json: options.Json = False,
) -> None:
    """Check whether the ratios measured in a run stay within the constants L_h, L_g and L_tilde.

    A bound says nothing about a run whose ratios exceed the constants that it was evaluated with; the exit status is
    then 1. Rounds in which only some workers take part are compared with L_tilde alone, because their ratios do not
    bound L_h and L_g.

    Example: fedgauge runs check runs/first --values measured/measure.json
    """
    from fedgauge.base.errors import InputError
    from fedgauge.federation.participation import Participation
    from fedgauge.measurement.trajectory import exceeded
    from fedgauge.show import console
    from fedgauge.show.views.runs import check_view
    from fedgauge.simulation.runs.reader import read_run
    from fedgauge.theory.arguments import check_federation, read_estimates

    saved = read_run(run)
    _warn([saved])
    weights = dict(saved.settings.get("participation") or {}).get("weights")
    shares = Participation(weights=weights).shares
    check_federation(values, saved.settings.get("federation"), f"the run in {run}", shares)
    constants = read_estimates(values)
    limits: dict[str, float] = {name: constants[name].value for name in ("L_h", "L_g", "L_tilde") if name in constants}
    if not limits:
        raise InputError(f"{values} has none of L_h, L_g and L_tilde; name a file that has one of them.")
    watched = [record for record in saved.rounds if record.L_h_ratio is not None]
    if not watched:
        raise InputError(f"The run in {run} recorded no ratios; run it with --watch and more than one worker.")
    everyone = any(record.L_g_ratio is not None for record in watched)
    unchecked = [] if everyone else [name for name in ("L_h", "L_g") if limits.pop(name, None) is not None]
    if not limits:
        raise InputError(
            f"The run in {run} has no round in which all workers take part, so {' and '.join(unchecked)} cannot be"
            " checked; name a file that has L_tilde."
        )
    flags = exceeded(saved.rounds, limits)
    if json:
        flagged = [
            {"round": number, "symbol": name, "seen": seen, "limit": limits[name]} for number, name, seen in flags
        ]
        result = {"run": str(run), "note": saved.note, "limits": limits, "rounds": len(watched), "exceeded": flagged}
        options.print_json({**result, "unchecked": unchecked})
    else:
        console.show(check_view(saved, limits, flags, len(watched)))
        if unchecked:
            say(f"Not checked: {' and '.join(unchecked)}, because in no round did all workers take part.")
    if flags:
        raise typer.Exit(1)


@app.command()
def export(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The directory of a run; for records, also a directory of many runs."),
    ],
    to: Annotated[
        list[Path] | None,
        typer.Option(
            help="File to write: records as .json or .parquet, the model as .safetensors or .pt; may be repeated."
        ),
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Write a TensorBoard event file to this directory.")] = None,
    observer: options.Observer = None,
    json: options.Json = False,
) -> None:
    """Write the records and the model of a run for other tools, or pass the records to your own observer.

    Example: fedgauge runs export runs/first --to records.parquet --to model.safetensors
    Example: fedgauge runs export sweep/runs --to sweep.parquet
    Example: fedgauge runs export runs/first --tensorboard board --observer mytracker:csv
    """
    from fedgauge.base.errors import InputError
    from fedgauge.simulation.runs.export import write_model, write_records
    from fedgauge.simulation.runs.observers import make_observer, replay, watching
    from fedgauge.simulation.runs.reader import find_runs, read_run
    from fedgauge.simulation.runs.trackers import TensorBoard
    from fedgauge.values.display import counted

    files = to or []
    if not (files or tensorboard or observer):
        raise InputError("export needs a destination; give --to FILE, --tensorboard DIR or --observer MODULE:FACTORY.")
    for path in files:
        if path.suffix not in (".json", ".parquet", ".safetensors", ".pt"):
            raise InputError(f"--to must end in .json, .parquet, .safetensors or .pt, not {str(path)!r}.")
        options.check_file(path)
    if tensorboard:
        options.check_directory(tensorboard, "tensorboard")
    many = not (run / "settings.json").is_file() and run.is_dir() and find_runs(run)
    if many and (tensorboard or observer or any(path.suffix in (".safetensors", ".pt") for path in files)):
        raise InputError(
            f"{run} holds {len(many)} runs, which can only be exported together as .json or .parquet; name one of them."
        )
    saved = many or [read_run(run)]
    options.allow_user_modules()
    observers = [make_observer(name, saved[0].experiment or saved[0].settings) for name in observer or []]
    for path in files:
        if path.suffix in (".json", ".parquet"):
            write_records(path, saved)
        else:
            write_model(path, run)
    with watching([*([TensorBoard(tensorboard)] if tensorboard else []), *observers]) as observe:
        replay(saved[0], observe)
    _warn(saved)
    records, written = sum(len(each.rounds) for each in saved), [str(path) for path in files]
    if json:
        board = {"tensorboard": str(tensorboard)} if tensorboard else {}
        options.print_json({"run": str(run), "runs": len(saved), "records": records, "files": written, **board})
    else:
        recorded = tensorboard or observer or any(path.suffix in (".json", ".parquet") for path in files)
        number = [counted(records, "record")] if recorded else []
        say("Written: " + ", ".join([*number, *written]))
        if tensorboard:
            say(f"View it with: tensorboard --logdir {tensorboard}")


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
    from fedgauge.show import console

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
