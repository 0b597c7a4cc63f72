"""The paper's tables and figures by command."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options
from fedgauge.cli.results import check, conclude, resumable, write
from fedgauge.reproduce import studies
from fedgauge.system.terminal import say

app = typer.Typer(name="reproduce", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Reproduce the paper's tables and figures.

    Example: fedgauge reproduce table2 --out results/table2
    """


Scale = Annotated[
    studies.Scale,
    typer.Option(
        help="smoke: checks that it works; laptop: minutes to an hour each; paper: as printed, days without a GPU."
    ),
]
Seeds = Annotated[int | None, typer.Option(help="How many seeds \\[default: the scale's own].")]
Jobs = Annotated[int | None, typer.Option(help="Number of processes \\[default: one per core].")]


@app.command()
def table2(
    seeds: Annotated[int, typer.Option(help="Problems for each number of workers.")] = 12,
    seed: Annotated[int, typer.Option(help="The first problem's seed.")] = 0,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table2.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 2: rounds to reach a loss on quadratics with a common Hessian, for rates and local steps.

    Example: fedgauge reproduce table2 --seeds 12 --out results/table2
    """
    from fedgauge.report.terminal import console
    from fedgauge.reproduce import table2 as table

    check(out)
    compute = options.compute_from(jobs, engine, address)
    with resumable(out), console.doing() as progress:
        keep, say = out / "cells" if out else None, partial(progress, "table 2")
        result = table.run(seeds, seed, keep=keep, compute=compute, progress=say)
    conclude(table, result, out, "table2", json)


@app.command()
def table1(
    model: Annotated[str, typer.Option(help="mlp, cnn, vgg11 or vgg16, each on the paper's data.")] = "mlp",
    scale: Scale = "laptop",
    seeds: Seeds = None,
    data: options.Data = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table1.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 1: L_h, L_tilde and L_g of a network as the data grows heterogeneous, and what the numbers depend on.

    Example: fedgauge reproduce table1 --model mlp --data DIR --out results/table1
    """
    from fedgauge.errors import InputError, nearest
    from fedgauge.report.terminal import console
    from fedgauge.reproduce import table1 as table

    if model not in table.PAPER:
        raise InputError(f"Table 1 has no model {model!r}; {nearest(model, table.PAPER)}")
    check(out, seeds)
    compute = options.compute_from(None, engine, address)
    with resumable(out), console.doing() as progress:
        keep, place = out / "cells" if out else None, str(data) if data else None
        result = table.run(studies.study(model), scale, seeds, place, keep, progress, compute)
    conclude(table, result, out, "table1", json)


@app.command()
def fig1(
    out: Annotated[Path | None, typer.Option(help="Directory for result.json and fig1.png.")] = None,
    json: options.Json = False,
) -> None:
    """Figure 1: two workers in the plane whose models drift apart while their average stays, or does not.

    Example: fedgauge reproduce fig1 --out results/fig1
    """
    from fedgauge.reproduce import sketch

    check(out)
    conclude(sketch, sketch.run(), out, "fig1", json)


@app.command()
def sampling(
    out: Annotated[Path | None, typer.Option(help="Directory for result.json and sampling.png.")] = None,
    json: options.Json = False,
) -> None:
    """What partial participation adds to the error, exactly, on quadratics with more and less L_h.

    Example: fedgauge reproduce sampling --out results/sampling
    """
    from fedgauge.reproduce import sampling as table

    check(out)
    conclude(table, table.run(), out, "sampling", json)


def _figure(name: str) -> None:
    """Add the command of one of the figures that show curves."""

    def figure(
        scale: Scale = "laptop",
        seeds: Seeds = None,
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
        from fedgauge.errors import InputError
        from fedgauge.report.terminal import console
        from fedgauge.reproduce import training_curves

        if out is None:
            raise InputError(f"{name} needs --out, a directory that keeps its runs.")
        check(out, seeds)
        compute = options.compute_from(jobs, engine, address)
        with resumable(out), console.doing() as progress:
            place = str(data) if data else None
            result = training_curves.run(
                name, scale, runs or out / "runs", data=place, seeds=seeds, progress=progress, compute=compute
            )
            if result is None:
                raise KeyboardInterrupt
        conclude(training_curves, result, out, name, json)

    what = "Not in the paper's figures" if name in studies.UNSHOWN else f"Figure {name.removeprefix('fig')}"
    figure.__doc__ = f"""{what}: {studies.title(name)}.

    Runs go side by side and are kept: the same command resumes, and more --seeds only add runs.

    Example: fedgauge reproduce {name} --scale laptop --data DIR --out results/{name}
    """
    app.command(name)(figure)


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
    """Compute every table and figure, then the ledger; finished parts are not run again.

    What cannot be run because its data is missing is named at the end, and the ledger says so.

    Example: fedgauge reproduce all --scale laptop --data DIR --out results
    """
    from fedgauge.errors import InputError
    from fedgauge.report.terminal import console
    from fedgauge.reproduce import exhibits

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
    results: Annotated[
        Path, typer.Argument(help="Directory of results, as 'reproduce all' writes it.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Draw the pictures of stored results again, also those of sweeps and plans among them; nothing is run.

    Example: fedgauge reproduce draw results
    """
    from fedgauge.errors import InputError
    from fedgauge.reproduce import exhibits

    options.check_directory(results, "results")
    drawn = [str(path) for path in exhibits.draw_stored(results)]
    if not drawn:
        raise InputError(f"There is no result in {results}; name a directory that 'fedgauge reproduce all' wrote.")
    if json:
        options.print_json({"pictures": drawn})
    else:
        say(f"Written: {', '.join(drawn)}")


@app.command()
def ledger(
    results: Annotated[
        Path, typer.Argument(help="Directory of results, as 'reproduce all' writes it.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Write the page here (.md), and its rows beside it (.json).")] = None,
    json: options.Json = False,
) -> None:
    """List the paper's claims beside what the results say: reproduced, only in order, not reproduced, or not run.

    Example: fedgauge reproduce ledger results --out results/ledger.md
    """
    from fedgauge.errors import InputError

    if out and out.suffix != ".md":
        raise InputError(f"out must be a file that ends in .md, not {str(out)!r}.")
    if out:
        options.check_file(out)
    _ledger(results, out, json)


def _ledger(results: Path, out: Path | None, json: bool) -> None:
    from fedgauge.reproduce import ledger as book
    from fedgauge.results.paper import Ledger
    from fedgauge.system.files import write_atomically, write_json

    rows = book.rows(book.read(results))
    made = Ledger.from_json({"verdicts": book.counts(rows), "claims": rows}).to_json()
    if out:
        write_atomically(out, book.page(rows, book.pictures_in(results)).encode())
        write_json(out.with_suffix(".json"), made)
    if json:
        options.print_json(made)
    else:
        book.show(rows)
        if out:
            say(f"Written: {out}, {out.with_suffix('.json')}; 'fedgauge report' shows the latter as a page.")


@app.command()
def lenses(
    source: Annotated[str, typer.Option(help="The data set: mnist, or digits for a quick look.")] = "mnist",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(help="Seeds for each partition.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    target: Annotated[float, typer.Option(help="The training loss to reach.")] = 0.3,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for lenses.md, lenses.json, lenses.png and finished cells.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Which measure of heterogeneity orders partitions as the slowdown from local steps does.

    Example: fedgauge reproduce lenses --source digits --out results/lenses
    """
    from fedgauge.errors import InputError, positive
    from fedgauge.report.terminal import console
    from fedgauge.reproduce import lens_orders
    from fedgauge.reproduce import lens_study as experiment

    if source not in ("mnist", "digits"):
        raise InputError(f"source must be mnist or digits, not {source!r}; the rates are set for these.")
    compute = options.compute_from(jobs, engine, address)
    positive("target", target)
    if out:
        options.check_directory(out)
    with resumable(out), console.progress() as bar:
        task = bar.add_task("lenses", total=None)
        result = experiment.run(
            source,
            None if data is None else str(data),
            seeds,
            seed,
            keep=out / "cells" if out else None,
            compute=compute,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            target=target,
        )
    if out:
        from fedgauge.system.files import make_directories, write_atomically, write_json

        make_directories(out)
        write_json(out / "lenses.json", result)
        command = f"fedgauge reproduce lenses --source {source} --seeds {seeds} --seed {seed} --target {target:g}"
        write_atomically(out / "lenses.md", lens_orders.page(result, f"{command} --out …").encode())
        lens_orders.draw(result, out / "lenses.png")
    if json:
        options.print_json(result)
    else:
        lens_orders.show(result)
        if out:
            say(f"Written: {', '.join(str(out / name) for name in ('lenses.md', 'lenses.json', 'lenses.png'))}")


@app.command()
def certified(
    source: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    data: options.Data = None,
    rounds: Annotated[int, typer.Option(help="Rounds R.")] = 200,
    seeds: Annotated[int, typer.Option(help="Runs for each line.")] = 20,
    theorem: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    local_steps: Annotated[
        list[int] | None, typer.Option(help="I, which may be repeated \\[default: 1, 4, 16].")
    ] = None,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the result and finished lines.")] = None,
    json: options.Json = False,
) -> None:
    """Theorems 4.3, 4.5, A.5 and A.9 with proved constants on softmax regression, beside runs.

    Example: fedgauge reproduce certified --source digits --seeds 20 --out results/certified
    """
    from fedgauge.report.terminal import console
    from fedgauge.reproduce import certified_bounds as table

    compute = options.compute_from(jobs, engine, address)
    if out:
        options.check_directory(out)
    with resumable(out), console.progress() as bar:
        task = bar.add_task("certified", total=None)
        result = table.run(
            source,
            data,
            rounds,
            seeds,
            keep=out / "lines" if out else None,
            compute=compute,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            theorems=theorem or (),
            local_steps=local_steps or (),
        )
    if out:
        from fedgauge.system.files import make_directories, write_json

        make_directories(out)
        write_json(out / f"{source}.json", result)
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            say(f"Written: {out / f'{source}.json'}")


@app.command()
def decisive(
    source: Annotated[str, typer.Option(help="The data set: digits, mnist or cifar10.")] = "digits",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(help="Seeds for each federation.")] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind of heterogeneity; may be repeated.", show_default=False)
    ] = None,
    designed: Annotated[bool, typer.Option(help="Also federations of equal zeta, found by bisection.")] = True,
    jobs: Jobs = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the result, its picture and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Does L_h decide? Many kinds of heterogeneity, the slowdown of each, and what every lens said beforehand.

    Example: fedgauge reproduce decisive --source digits --out results/decisive
    """
    from fedgauge.report.terminal import console
    from fedgauge.reproduce.decisive import page, study

    compute = options.compute_from(jobs, engine, address)
    check(out, seeds)
    with resumable(out), console.doing() as progress:
        result = study.run_study(
            source,
            None if data is None else str(data),
            seeds,
            seed,
            kinds=kind or (),
            designed=designed,
            keep=out / "cells" if out else None,
            compute=compute,
            progress=progress,
        )
    if out:
        from fedgauge.system.files import make_directories, write_atomically, write_json

        make_directories(out)
        write_json(out / "decisive.json", result)
        write_atomically(out / "decisive.md", page.markdown(result).encode())
        page.draw(result, out / "decisive.png")
    if json:
        options.print_json(result)
    else:
        page.show(result)
        if out:
            say(f"Written: {', '.join(str(out / f'decisive.{suffix}') for suffix in ('md', 'json', 'png'))}")
