"""The paper's tables and figures by command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.cli import options
from fedgauge.engines.choice import check_engine

app = typer.Typer(name="reproduce", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Reproduce the paper's tables and figures.

    Example: fedgauge reproduce table2 --out results/table2
    """


def _conclude(table: Any, result: dict[str, Any], out: Path | None, picture: str, json: bool) -> None:
    """Write a table's numbers and picture where that was asked for, and show it."""
    if out:
        from fedgauge.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "result.json", result)
        table.draw(result, out / picture)
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            print(f"Written: {out / 'result.json'}, {out / picture}")


@app.command()
def table2(
    seeds: Annotated[int, typer.Option(help="Problems for each number of workers.")] = 12,
    seed: Annotated[int, typer.Option(help="The first problem's seed.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes \\[default: one a core].")] = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table2.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 2: rounds to reach a loss on quadratics with a common Hessian, for rates and local steps.

    Example: fedgauge reproduce table2 --seeds 12 --out results/table2
    """
    from fedgauge.errors import count
    from fedgauge.report import terminal
    from fedgauge.reproduce import table2 as table

    if jobs is not None:
        count("jobs", jobs)
    check_engine(engine, address)
    if out:
        options.check_directory(out)
    with terminal.progress() as bar:
        task = bar.add_task("table 2", total=None)
        result = table.run(
            seeds,
            seed,
            keep=out / "cells" if out else None,
            jobs=jobs,
            told=lambda done, total: bar.update(task, completed=done, total=total),
            engine=engine,
            address=address,
        )
    _conclude(table, result, out, "table2.png", json)


@app.command()
def table1(
    seeds: Annotated[int, typer.Option(help="Seeds for each percentage.")] = 5,
    source: Annotated[str, typer.Option(help="The data set.")] = "mnist",
    data: options.Data = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json, table1.png and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Table 1: L_h, L_tilde and L_g of the MLP as the data grows heterogeneous, and what the numbers depend on.

    Example: fedgauge reproduce table1 --data DIR --out results/table1
    """
    from fedgauge.report import terminal
    from fedgauge.reproduce import table1 as table

    check_engine(engine, address)
    if out:
        options.check_directory(out)
    with terminal.progress() as bar:
        task = bar.add_task("table 1", total=None)
        result = table.run(
            seeds,
            source,
            str(data) if data else None,
            keep=out / "cells" if out else None,
            told=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
            engine=engine,
            address=address,
        )
    _conclude(table, result, out, "table1.png", json)


@app.command()
def lenses(
    source: Annotated[str, typer.Option(help="The data set: mnist, or digits for a quick look.")] = "mnist",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(help="Seeds for each partition.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    target: Annotated[float, typer.Option(help="The training loss to reach.")] = 0.3,
    jobs: Annotated[int | None, typer.Option(help="Processes \\[default: one a core].")] = None,
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
    from fedgauge.errors import InputError, count, positive
    from fedgauge.report import terminal
    from fedgauge.reproduce import lens_orders
    from fedgauge.reproduce import lenses as experiment

    if source not in ("mnist", "digits"):
        raise InputError(f"source must be mnist or digits, not {source!r}; the rates are set for these.")
    if jobs is not None:
        count("jobs", jobs)
    positive("target", target)
    check_engine(engine, address)
    if out:
        options.check_directory(out)
    with terminal.progress() as bar:
        task = bar.add_task("lenses", total=None)
        result = experiment.run(
            source,
            None if data is None else str(data),
            seeds,
            seed,
            keep=out / "cells" if out else None,
            jobs=jobs,
            told=lambda done, total: bar.update(task, completed=done, total=total),
            engine=engine,
            address=address,
            target=target,
        )
    if out:
        from fedgauge.files import write_atomically, write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "lenses.json", result)
        command = f"fedgauge reproduce lenses --source {source} --seeds {seeds} --seed {seed} --target {target:g}"
        write_atomically(out / "lenses.md", lens_orders.page(result, f"{command} --out …").encode())
        lens_orders.draw(result, out / "lenses.png")
    if json:
        options.print_json(result)
    else:
        lens_orders.show(result)
        if out:
            print(f"Written: {', '.join(str(out / name) for name in ('lenses.md', 'lenses.json', 'lenses.png'))}")


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
    jobs: Annotated[int | None, typer.Option(help="Processes \\[default: one a core].")] = None,
    engine: options.Engine = None,
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the result and finished lines.")] = None,
    json: options.Json = False,
) -> None:
    """Theorems 4.3, 4.5, A.5 and A.9 with proved constants on softmax regression, beside runs.

    Example: fedgauge reproduce certified --source digits --seeds 20 --out results/certified
    """
    from fedgauge.errors import count
    from fedgauge.report import terminal
    from fedgauge.reproduce import certified as table

    if jobs is not None:
        count("jobs", jobs)
    check_engine(engine, address)
    if out:
        options.check_directory(out)
    with terminal.progress() as bar:
        task = bar.add_task("certified", total=None)
        result = table.run(
            source,
            data,
            rounds,
            seeds,
            keep=out / "lines" if out else None,
            jobs=jobs,
            told=lambda done, total: bar.update(task, completed=done, total=total),
            engine=engine,
            address=address,
            theorems=theorem or (),
            local_steps=local_steps or (),
        )
    if out:
        from fedgauge.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / f"{source}.json", result)
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            print(f"Written: {out / f'{source}.json'}")
