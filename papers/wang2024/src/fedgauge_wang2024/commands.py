"""The paper's tables and figures by command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.help import everyday
from fedgauge_wang2024 import studies, study_commands
from fedgauge_wang2024.places import RESULTS
from fedgauge_wang2024.writing import Address, Engine, Jobs, check, compute_from, conclude, resumable, write

if TYPE_CHECKING:
    from fedgauge_wang2024.exhibits import Exhibit
    from fedgauge_wang2024.training_curves import CurvePart

app = typer.Typer(name="paper", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Reproduce the paper: its tables, figures and claims, a command for each.

    Results go to one directory, wang2024 where no other is named; the same command resumes and adds to what is there.

    Example: fedgauge paper figure 8 --effort workstation
    """


_EFFORT = (
    "How much to compute: smoke checks that it works, laptop takes minutes to an hour for each part, workstation hours"
    " to a night, and paper, as printed, days without a GPU \\[default: laptop]."
)
Effort = Annotated[studies.Scale | None, typer.Option("--effort", help=_EFFORT)]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds \\[default: the effort's own].")]
Percents = Annotated[
    list[int] | None, typer.Option("--percent", help="Only this percentage of one label; may be repeated.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="Only this network: mlp, cnn, vgg11 or vgg16; may be repeated.")
]
Finished = Annotated[bool, typer.Option("--finished", help="Run nothing; show the curves whose runs have finished.")]
Runs = Annotated[Path | None, typer.Option(help="Directory of runs that figures share \\[default: OUT/runs].")]
Out = Annotated[Path, typer.Option(help="Directory of all results; each has a directory of its own in it.")]
Given = Annotated[Path, typer.Argument(help="Directory of results.")]


def _refuse(what: str, **given: Any) -> None:
    """Refuse options that a table or figure has no use for."""
    from fedgauge.base.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"{what} has no --{name.replace('_', '-')}; leave it out.")


def _number(what: str, number: int, last: int) -> None:
    from fedgauge.base.errors import InputError

    if not 1 <= number <= last:
        raise InputError(f"The paper has no {what} {number}; its {what}s are 1 to {last}.")


def _make(
    exhibit: Exhibit,
    part: CurvePart | None,
    effort: studies.Scale | None,
    data: Path | None,
    out: Path,
    where: tuple[int | None, str | None, str | None],
    json: bool,
    **others: Any,
) -> None:
    """Run a table or figure, write it to its place among the results, and show it."""
    from fedgauge.show import console
    from fedgauge_wang2024.exhibits import Request
    from fedgauge_wang2024.training_curves import ALL

    check(out, part.seeds if part else None)
    compute = compute_from(*where)
    with resumable(out), console.doing() as progress:
        place = str(data) if data else None
        asked = Request(out, effort or "laptop", place, compute, progress, part or ALL, **others)
        result = exhibit.run(asked, exhibit.place(asked))
        if result is None:
            raise KeyboardInterrupt
    conclude(exhibit.module, result, exhibit.place(asked), exhibit.picture, json)


@app.command()
@everyday("effort", "seeds", "percent", "model", "finished", "data", "out", "jobs", "json")
def figure(
    number: Annotated[int, typer.Argument(help="As in the paper: 1 to 9.")],
    effort: Effort = None,
    seeds: Seeds = None,
    percent: Percents = None,
    model: Models = None,
    finished: Finished = False,
    data: options.Data = None,
    out: Out = RESULTS,
    runs: Runs = None,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    json: options.Json = False,
) -> None:
    """A figure: the curves of several numbers of local steps, or, as Figure 1, a sketch.

    Several runs are made at a time, and saved: repeating the command resumes them, and more --seeds, --percent or
    --model add runs. Figures 2 and 3 show the same runs.

    Example: fedgauge paper figure 8 --effort workstation --data DIR
    """
    from fedgauge_wang2024 import exhibits

    _number("figure", number, 9)
    if number == 1:
        _refuse("Figure 1", effort=effort, seeds=seeds, percent=percent, model=model, finished=finished, runs=runs)
        _make(exhibits.find("fig1"), None, None, None, out, (jobs, engine, address), json)
        return
    chosen = _part(f"fig{number}", effort, seeds, percent, model, finished)
    _make(exhibits.find(f"fig{number}"), chosen, effort, data, out, (jobs, engine, address), json, runs=runs)


@app.command()
@everyday("effort", "seeds", "percent", "finished", "data", "out", "jobs", "json")
def linear(
    effort: Effort = None,
    seeds: Seeds = None,
    percent: Percents = None,
    finished: Finished = False,
    data: options.Data = None,
    out: Out = RESULTS,
    runs: Runs = None,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    json: options.Json = False,
) -> None:
    """Linear regression on MNIST, which the paper names and has no figure of.

    Example: fedgauge paper linear --data DIR
    """
    from fedgauge_wang2024 import exhibits

    chosen = _part("linear", effort, seeds, percent, None, finished)
    _make(exhibits.LINEAR, chosen, effort, data, out, (jobs, engine, address), json, runs=runs)


def _part(
    name: str,
    effort: studies.Scale | None,
    seeds: int | None,
    percent: list[int] | None,
    model: list[str] | None,
    finished: bool,
) -> CurvePart:
    """The part of a figure that is asked for; says how much it is, before it begins."""
    from fedgauge_wang2024.places import spelling
    from fedgauge_wang2024.training_curves import CurvePart
    from fedgauge_wang2024.workload import steps_of

    check(None, seeds)
    part = CurvePart(tuple(model or ()), tuple(percent or ()), seeds, finished)
    cells = [cell for sweep in part.sweeps(name, effort or "laptop").values() for cell in sweep.cells]
    if not finished:
        steps = sum(steps_of(cell.experiment) for cell in cells)
        what = spelling(name).capitalize()
        say(
            f"{what} has {len(cells)} runs with {steps:,} gradient steps in all; finished ones are not run again.",
            error=True,
        )
    return part


@app.command()
@everyday("model", "effort", "seeds", "percent", "data", "out", "jobs", "json")
def table(
    number: Annotated[int, typer.Argument(help="As in the paper: 1 or 2.")],
    model: Annotated[
        str | None, typer.Option(help="Table 1 of mlp, cnn, vgg11 or vgg16, each on its data \\[default: mlp].")
    ] = None,
    effort: Effort = None,
    seeds: Seeds = None,
    seed: Annotated[int | None, typer.Option(help="The first seed of Table 2 \\[default: 0].")] = None,
    percent: Percents = None,
    data: options.Data = None,
    out: Out = RESULTS,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    json: options.Json = False,
) -> None:
    """Table 1, the constants of a network as its data grows heterogeneous, or Table 2, rounds on quadratics.

    Table 1 has L_h, L_tilde and L_g for each percentage of one label, and what these numbers depend on; it is made for
    one network at a time. Table 2 has the rounds to a loss for many rates and local steps; --seeds is its number of
    problems.

    Example: fedgauge paper table 1 --model vgg16 --data DIR
    """
    from fedgauge.base.errors import InputError, nearest
    from fedgauge.base.randomness import check_seed
    from fedgauge_wang2024 import exhibits
    from fedgauge_wang2024 import table1 as first
    from fedgauge_wang2024.training_curves import CurvePart

    _number("table", number, 2)
    chosen = CurvePart(percents=tuple(percent or ()), seeds=seeds)
    where = (jobs, engine, address)
    if number == 2:
        _refuse("Table 2", model=model, effort=effort, percent=percent, data=data)
        check_seed(seed or 0)
        _make(exhibits.find("table2"), chosen, None, None, out, where, json, seed=seed or 0)
        return
    _refuse("Table 1", seed=seed)
    if model is not None and model not in first.PAPER:
        raise InputError(f"Table 1 has no model {model!r}; {nearest(model, first.PAPER)}")
    _make(exhibits.find(exhibits.table1_of(model or "mlp")), chosen, effort, data, out, where, json)


@app.command()
def sampling(out: Out = RESULTS, json: options.Json = False) -> None:
    """What partial participation adds to the exact error on quadratics.

    Example: fedgauge paper sampling
    """
    from fedgauge_wang2024 import exhibits

    _make(exhibits.find("sampling"), None, None, None, out, (None, None, None), json)


@app.command("all")
def everything(
    effort: Effort = None,
    data: options.Data = None,
    out: Out = RESULTS,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    json: options.Json = False,
) -> None:
    """Compute every table and figure, then the ledger.

    Finished parts are not run again. What cannot be run because its data is missing is named at the end, and the ledger
    says so.

    Example: fedgauge paper all --effort laptop --data DIR
    """
    from fedgauge.base.errors import InputError
    from fedgauge.show import console
    from fedgauge_wang2024 import exhibits

    check(out)
    compute = compute_from(jobs, engine, address)
    failed: dict[str, str] = {}
    with resumable(out), console.doing() as progress:
        asked = exhibits.Request(out, effort or "laptop", str(data) if data else None, compute, progress)
        for exhibit in exhibits.EXHIBITS:
            place = exhibit.place(asked)
            try:
                result = exhibit.run(asked, place)
            except InputError as error:
                failed[exhibit.name] = str(error)
                continue
            if result is None:
                raise KeyboardInterrupt
            write(exhibit.module, result, place, exhibit.picture)
    _ledger(out, out / "ledger.md", json)
    for name, why in failed.items():
        say(f"fedgauge: {name} was not run: {why}", error=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def status(
    results: Given = RESULTS,
    effort: Effort = None,
    model: Models = None,
    seconds: Annotated[float, typer.Option(help="How long each network is timed that no kept result has timed.")] = 2.0,
    json: options.Json = False,
) -> None:
    """Say which results are there, which are missing, and how many hours these take.

    Hours follow from the times of the kept results of the same network, or, where there is none, from timing it for a
    few seconds; each line says which. They are those of one core.

    Example: fedgauge paper status --effort workstation
    """
    from fedgauge.base.errors import positive
    from fedgauge.show import console
    from fedgauge_wang2024 import status as overview

    for name in model or ():
        studies.study(name)
    wanted = positive("seconds", seconds)
    with console.doing() as progress:
        found = overview.status(results, effort or "laptop", tuple(model or ()), wanted, progress)
    if json:
        options.print_json(found)
    else:
        overview.show(found)


@app.command()
def draw(results: Given = RESULTS, json: options.Json = False) -> None:
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
    results: Given = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Write the page here (.md), and its rows beside it (.json).")] = None,
    json: options.Json = False,
) -> None:
    """List the paper's claims beside what the results say.

    A claim is reproduced, reproduced only in order, not reproduced, not decided, or not run.

    Example: fedgauge paper ledger --out wang2024/ledger.md
    """
    from fedgauge.base.errors import InputError

    if out and out.suffix != ".md":
        raise InputError(f"out must be a file that ends in .md, not {str(out)!r}.")
    if out:
        options.check_file(out)
    _ledger(results, out, json)


def _ledger(results: Path, out: Path | None, json: bool) -> None:
    from dataclasses import replace

    from fedgauge.base.files import write_atomically, write_json
    from fedgauge_wang2024 import ledger as book
    from fedgauge_wang2024 import ledger_page, printed_sizes
    from fedgauge_wang2024.results import Ledger

    found, notes = book.read(results), book.notes_in(results)
    rows = book.rows(found, notes)
    sizes = printed_sizes.compared(found)
    ledger = Ledger.from_json({"verdicts": book.counts(rows), "claims": rows})
    made = replace(ledger, printed_sizes=tuple(sizes)).to_json()
    if out:
        write_atomically(out, ledger_page.page(rows, book.kept_in(results), notes.page, sizes).encode())
        write_json(out.with_suffix(".json"), made)
    if json:
        options.print_json(made)
    else:
        book.show(rows)
        if sizes:
            printed_sizes.show(sizes)
        if out:
            say(f"Written: {out}, {out.with_suffix('.json')}; 'fedgauge report' shows the latter as a page.")


for command in (study_commands.lenses, study_commands.certified, study_commands.decisive):
    app.command()(command)
