"""Studies of our own beside the paper's tables and figures, as commands of ``reproduce``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options
from fedgauge.cli.help import everyday
from fedgauge_wang2024.writing import Address, Engine, Jobs, check, compute_from, resumable


def lenses(
    source: Annotated[str, typer.Option(help="The data set: mnist, or digits for a quick look.")] = "mnist",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each partition.")] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    goal: Annotated[
        str, typer.Option(metavar="QUANTITY=VALUE", help="The training loss to reach, as in loss=0.3.")
    ] = "loss=0.3",
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for lenses.md, lenses.json, lenses.png and finished cells.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Which measure of heterogeneity orders partitions as the slowdown from local steps does.

    Example: fedgauge paper lenses --source digits --out results/lenses
    """
    from fedgauge.base.errors import InputError, positive
    from fedgauge.measurement.gauge.preparation import read_goal
    from fedgauge.show import console
    from fedgauge_wang2024 import lens_orders
    from fedgauge_wang2024 import lens_study as experiment

    if source not in ("mnist", "digits"):
        raise InputError(f"source must be mnist or digits, not {source!r}; the rates are set for these.")
    compute = compute_from(jobs, engine, address)
    target = positive("The goal", read_goal(goal) or 0.0)
    if out:
        options.check_directory(out)
    with resumable(out), console.doing() as progress:
        result = experiment.run(
            source,
            None if data is None else str(data),
            seeds,
            seed,
            keep=out / "cells" if out else None,
            compute=compute,
            progress=progress,
            target=target,
        )
    if out:
        from fedgauge.base.files import make_directories, write_atomically, write_json

        make_directories(out)
        write_json(out / "lenses.json", result)
        command = f"fedgauge paper lenses --source {source} --seeds {seeds} --seed {seed} --goal loss={target:g}"
        write_atomically(out / "lenses.md", lens_orders.page(result, f"{command} --out …").encode())
        lens_orders.draw(result, out / "lenses.png")
    if json:
        options.print_json(result)
    else:
        lens_orders.show(result)
        if out:
            say(f"Written: {', '.join(str(out / name) for name in ('lenses.md', 'lenses.json', 'lenses.png'))}")


def certified(
    source: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    data: options.Data = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds R.")] = 200,
    seeds: Annotated[int, typer.Option(help="Number of seeds: runs for each line.")] = 20,
    theorem: Annotated[list[str] | None, typer.Option(help="Only this theorem; may be repeated.")] = None,
    local_steps: Annotated[
        list[int] | None, typer.Option(help="Local steps I; may be repeated \\[default: 1, 4, 16].")
    ] = None,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the result and finished lines.")] = None,
    json: options.Json = False,
) -> None:
    """Theorems 4.3, 4.5, A.5 and A.9 with proved constants on softmax regression, beside runs.

    Example: fedgauge paper certified --source digits --seeds 20 --out results/certified
    """
    from fedgauge.show import console
    from fedgauge_wang2024 import certified_bounds as table

    compute = compute_from(jobs, engine, address)
    if out:
        options.check_directory(out)
    with resumable(out), console.doing() as progress:
        result = table.run(
            source,
            data,
            rounds,
            seeds,
            keep=out / "lines" if out else None,
            compute=compute,
            progress=progress,
            theorems=theorem or (),
            local_steps=local_steps or (),
        )
    if out:
        from fedgauge.base.files import make_directories, write_json

        make_directories(out)
        write_json(out / f"{source}.json", result)
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            say(f"Written: {out / f'{source}.json'}")


@everyday("source", "data", "seeds", "kind", "result", "designed", "jobs", "out", "json")
def decisive(
    source: Annotated[str, typer.Option(help="The data set: digits, mnist or cifar10.")] = "digits",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each federation.")] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind of heterogeneity; may be repeated.")] = None,
    result: Annotated[
        Path | None,
        typer.Option(help="Run nothing; make the page of this result (.json) again."),
    ] = None,
    designed: Annotated[bool, typer.Option(help="Also federations of equal zeta, found by bisection.")] = True,
    jobs: Jobs = None,
    engine: Engine = None,
    address: Address = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the result, its picture and finished cells.")] = None,
    json: options.Json = False,
) -> None:
    """Does L_h decide? Many kinds of heterogeneity, the slowdown of each, and how well every lens predicts it.

    With --result, the tables and the picture of a result that is there are made again.

    Example: fedgauge paper decisive --source digits --out results/decisive
    """
    from fedgauge.show import console
    from fedgauge_wang2024.decisive import study

    compute = compute_from(jobs, engine, address)
    check(out, seeds)
    if result is not None:
        _conclude_decisive(study.read_study(result), out, json)
        return
    with resumable(out), console.doing() as progress:
        made = study.run_study(
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
    _conclude_decisive(made, out, json)


def _conclude_decisive(result: Mapping[str, Any], out: Path | None, json: bool) -> None:
    """Write the study's numbers, its page and its picture, and show it."""
    from fedgauge_wang2024.decisive import page

    if out:
        from fedgauge.base.files import make_directories, write_atomically, write_json

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
