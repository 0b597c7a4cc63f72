"""The paper's tables and figures by command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.help import everyday
from fedgauge_wang2024 import studies, study_commands
from fedgauge_wang2024.writing import Jobs, check, conclude, resumable, write

app = typer.Typer(name="paper", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Reproduce the paper's tables and figures.

    Example: fedgauge paper table2 --out results/table2
    """


Scale = Annotated[
    studies.Scale,
    typer.Option(
        "--effort",
        help="How much to compute: smoke checks that it works, laptop takes minutes to an hour for each part,"
        " workstation hours to a night, and paper, as printed, days without a GPU.",
    ),
]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds \\[default: the effort's own].")]
Percents = Annotated[
    list[int] | None, typer.Option("--percent", help="Only this percentage of one label; may be repeated.")
]


@app.command()
def table2(
    seeds: Annotated[int, typer.Option(help="Number of seeds: problems for each number of workers.")] = 12,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table2.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 2: rounds to reach a loss on quadratics with one Hessian.

    They are shown for many rates and local steps.

    Example: fedgauge paper table2 --seeds 12 --out results/table2
    """
    from fedgauge.show import console
    from fedgauge_wang2024 import table2 as table

    check(out)
    compute = options.compute_from(jobs, engine, address)
    with resumable(out), console.doing() as progress:
        keep = out / "cells" if out else None
        result = table.run(seeds, seed, keep=keep, compute=compute, progress=progress)
    conclude(table, result, out, "table2", json)


@app.command()
@everyday("model", "scale", "seeds", "percent", "data", "out", "json")
def table1(
    model: Annotated[str, typer.Option(help="mlp, cnn, vgg11 or vgg16, each on the paper's data.")] = "mlp",
    scale: Scale = "laptop",
    seeds: Seeds = None,
    percent: Percents = None,
    data: options.Data = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table1.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 1: L_h, L_tilde and L_g of a network as the data grows heterogeneous, and what the numbers depend on.

    Example: fedgauge paper table1 --model mlp --data DIR --out results/table1
    """
    from fedgauge.base.errors import InputError, nearest
    from fedgauge.show import console
    from fedgauge_wang2024 import table1 as table
    from fedgauge_wang2024.earlier import read_earlier
    from fedgauge_wang2024.results import Table1

    if model not in table.PAPER:
        raise InputError(f"Table 1 has no model {model!r}; {nearest(model, table.PAPER)}")
    check(out, seeds)
    compute = options.compute_from(None, engine, address)
    with resumable(out), console.doing() as progress:
        keep, place = out / "cells" if out else None, str(data) if data else None
        earlier = read_earlier(out, Table1)
        result = table.run(studies.study(model), scale, seeds, place, keep, progress, compute, percent or (), earlier)
    conclude(table, result, out, "table1", json)


@app.command()
def fig1(
    out: Annotated[Path | None, typer.Option(help="Directory for result.json and fig1.png.")] = None,
    json: options.Json = False,
) -> None:
    """Figure 1: two workers drift apart while their average stays, or not.

    Example: fedgauge paper fig1 --out results/fig1
    """
    from fedgauge_wang2024 import sketch

    check(out)
    conclude(sketch, sketch.run(), out, "fig1", json)


@app.command()
def sampling(
    out: Annotated[Path | None, typer.Option(help="Directory for result.json and sampling.png.")] = None,
    json: options.Json = False,
) -> None:
    """What partial participation adds to the exact error on quadratics.

    Example: fedgauge paper sampling --out results/sampling
    """
    from fedgauge_wang2024 import sampling as table

    check(out)
    conclude(table, table.run(), out, "sampling", json)


def _figure(name: str) -> None:
    """Add the command of one of the figures that show curves."""

    @everyday("scale", "seeds", "percent", "model", "finished", "data", "out", "jobs", "json")
    def figure(
        scale: Scale = "laptop",
        seeds: Seeds = None,
        percent: Percents = None,
        model: Annotated[
            list[str] | None, typer.Option(help="Only the panels of this model, as in table1; may be repeated.")
        ] = None,
        finished: Annotated[
            bool, typer.Option("--finished", help="Run nothing; show the curves whose runs have finished.")
        ] = False,
        data: options.Data = None,
        out: Annotated[Path | None, typer.Option(help="Directory for result.json, the picture and the runs.")] = None,
        runs: Annotated[
            Path | None, typer.Option(help="Directory of runs that figures share \\[default: OUT/runs].")
        ] = None,
        jobs: Jobs = None,
        engine: options.Engine = None,
        address: options.Address = None,
        json: options.Json = False,
    ) -> None:
        from fedgauge.base.errors import InputError
        from fedgauge.show import console
        from fedgauge_wang2024 import training_curves
        from fedgauge_wang2024.earlier import read_earlier
        from fedgauge_wang2024.results import CurvesFigure
        from fedgauge_wang2024.workload import steps_of

        if out is None:
            raise InputError(f"{name} needs --out, a directory that keeps its runs.")
        check(out, seeds)
        compute = options.compute_from(jobs, engine, address)
        part = training_curves.CurvePart(tuple(model or ()), tuple(percent or ()), seeds, finished)
        if not finished:
            cells = [cell for sweep in part.sweeps(name, scale).values() for cell in sweep.cells]
            steps = sum(steps_of(cell.experiment) for cell in cells)
            say(
                f"{name} has {len(cells)} runs with {steps:,} gradient steps in all; finished ones are not run again.",
                error=True,
            )
        with resumable(out), console.doing() as progress:
            place = str(data) if data else None
            kept = runs or out / "runs"
            earlier = read_earlier(out, CurvesFigure)
            result = training_curves.run(
                name, scale, kept, part, data=place, progress=progress, compute=compute, earlier=earlier
            )
            if result is None:
                raise KeyboardInterrupt
        conclude(training_curves, result, out, name, json)

    title = studies.title(name)
    what = "Not in the paper's figures" if name in studies.UNSHOWN else f"Figure {name.removeprefix('fig')}"
    figure.__doc__ = f"""{what}: {title}.

    Several runs are made at a time, and saved: repeating the command resumes them, and more --seeds, --percent or
    --model add runs.

    Example: fedgauge paper {name} --effort laptop --data DIR --out results/{name}
    """
    # A line of the list of commands has room for this much.
    for long, short in ((" at 50% and 75%", ""), ("training loss f", "loss"), ("test accuracy", "accuracy")):
        title = title.replace(long, short)
    app.command(name, short_help=f"{what}: {title}.")(figure)


for _name in studies.CURVES:
    _figure(_name)


@app.command("all")
def everything(
    scale: Scale = "laptop",
    data: options.Data = None,
    out: Annotated[Path | None, typer.Option(help="Directory for all results, each in one of its own.")] = None,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    json: options.Json = False,
) -> None:
    """Compute every table and figure, then the ledger.

    Finished parts are not run again. What cannot be run because its data is missing is named at the end, and the ledger
    says so.

    Example: fedgauge paper all --effort laptop --data DIR --out results
    """
    from fedgauge.base.errors import InputError
    from fedgauge.show import console
    from fedgauge_wang2024 import exhibits

    if out is None:
        raise InputError("all needs --out, a directory that keeps its results.")
    check(out)
    compute = options.compute_from(jobs, engine, address)
    failed: dict[str, str] = {}
    with resumable(out), console.doing() as progress:
        for exhibit in exhibits.EXHIBITS:
            try:
                result = exhibit.run(scale, out, str(data) if data else None, compute, progress)
            except InputError as error:
                failed[exhibit.name] = str(error)
                continue
            if result is None:
                raise KeyboardInterrupt
            write(exhibit.module, result, out / exhibit.name, exhibit.picture)
    _ledger(out, out / "ledger.md", json)
    for name, why in failed.items():
        say(f"fedgauge: {name} was not run: {why}", error=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def draw(
    results: Annotated[Path, typer.Argument(help="Directory of results, as 'paper all' writes it.")],
    json: options.Json = False,
) -> None:
    """Draw the pictures of stored results again; nothing is run.

    Those of sweeps and plans among them are drawn too.

    Example: fedgauge paper draw results
    """
    from fedgauge.base.errors import InputError
    from fedgauge_wang2024 import exhibits

    options.check_directory(results, "results")
    drawn = [str(path) for path in exhibits.draw_stored(results)]
    if not drawn:
        raise InputError(f"There is no result in {results}; name a directory that 'fedgauge paper all' wrote.")
    if json:
        options.print_json({"pictures": drawn})
    else:
        say(f"Written: {', '.join(drawn)}")


@app.command()
def ledger(
    results: Annotated[Path, typer.Argument(help="Directory of results, as 'paper all' writes it.")],
    out: Annotated[Path | None, typer.Option(help="Write the page here (.md), and its rows beside it (.json).")] = None,
    json: options.Json = False,
) -> None:
    """List the paper's claims beside what the results say.

    A claim is reproduced, reproduced only in order, not reproduced, or not run.

    Example: fedgauge paper ledger results --out results/ledger.md
    """
    from fedgauge.base.errors import InputError

    if out and out.suffix != ".md":
        raise InputError(f"out must be a file that ends in .md, not {str(out)!r}.")
    if out:
        options.check_file(out)
    _ledger(results, out, json)


def _ledger(results: Path, out: Path | None, json: bool) -> None:
    from fedgauge.base.files import write_atomically, write_json
    from fedgauge_wang2024 import ledger as book
    from fedgauge_wang2024.results import Ledger

    found, notes = book.read(results), book.notes_in(results)
    rows = book.rows(found, notes)
    made = Ledger.from_json({"verdicts": book.counts(rows), "claims": rows}).to_json()
    if out:
        write_atomically(out, book.page(rows, book.pictures_in(results), notes.page).encode())
        write_json(out.with_suffix(".json"), made)
    if json:
        options.print_json(made)
    else:
        book.show(rows)
        if out:
            say(f"Written: {out}, {out.with_suffix('.json')}; 'fedgauge report' shows the latter as a page.")


@app.command()
def hours(
    scale: Scale = "workstation",
    model: Annotated[list[str] | None, typer.Option(help="Only this model; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each network is timed.")] = 5.0,
    json: options.Json = False,
) -> None:
    """Say how many gradient steps, and hours on one core, an effort takes.

    Example: fedgauge paper hours --effort workstation --model cnn
    """
    from fedgauge.base.errors import positive
    from fedgauge_wang2024 import workload

    for name in model or ():
        studies.study(name)
    rows = workload.estimate(scale, tuple(model or ()), positive("seconds", seconds))
    if json:
        options.print_json({"scale": scale, "parts": rows})
    else:
        workload.show(rows, scale)


for command in (study_commands.lenses, study_commands.certified, study_commands.decisive):
    app.command()(command)
