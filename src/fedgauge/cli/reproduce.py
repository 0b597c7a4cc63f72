"""The paper's tables and figures by command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.cli import options

app = typer.Typer(name="reproduce", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Reproduce the paper's tables and figures.

    Example: fedgauge reproduce table2 --out results/table2
    """


@app.command()
def table2(
    seeds: Annotated[int, typer.Option(help="Problems for each number of workers.")] = 12,
    seed: Annotated[int, typer.Option(help="The first problem's seed.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes \\[default: one a core].")] = None,
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
        )
    if out:
        from fedgauge.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "result.json", result)
        table.draw(result, out / "table2.png")
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            print(f"Written: {out / 'result.json'}, {out / 'table2.png'}")


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
