"""What the commands of ``reproduce`` share: checks, resuming after Ctrl-C, and writing and showing a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options

if TYPE_CHECKING:
    from fedgauge.simulation.options import Compute

Jobs = Annotated[int | None, typer.Option(help="Number of processes \\[default: one per core].")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Where to compute: local (this machine) or ray (a Ray cluster, with fedgauge-ray) \\[default: local]."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of the cluster: HOST:PORT or auto \\[default: $RAY_ADDRESS, or a cluster started here]."
    ),
]


def conclude(table: Any, result: dict[str, Any], out: Path | None, name: str, json: bool) -> None:
    """Write a result's numbers and picture if there is a directory for them, and show it."""
    if out:
        write(table, result, out, name)
    if json:
        options.print_json(result)
    else:
        table.show(result)
        if out:
            say(f"Written: {out / 'result.json'}, {out / name}.png")


def write(table: Any, result: dict[str, Any], out: Path, name: str) -> None:
    """Write a result's numbers and its picture."""
    from fedgauge.base.files import make_directories, write_json

    make_directories(out)
    write_json(out / "result.json", result)
    table.draw(result, out / f"{name}.png")


@contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """Say on Ctrl-C that the same command resumes, if something was kept."""
    from fedgauge.base.errors import InterruptedCommandError

    try:
        yield
    except KeyboardInterrupt:
        if out is None:
            raise
        raise InterruptedCommandError(f"Interrupted; run the same command again to resume from {out}.") from None


def check(out: Path | None, seeds: int | None = None) -> None:
    """Refuse impossible options before anything is run."""
    from fedgauge.base.errors import MOST_RUNS, count

    if seeds is not None:
        count("seeds", seeds, most=MOST_RUNS)
    if out:
        options.check_directory(out)


def compute_from(jobs: int | None, engine: str | None, address: str | None) -> Compute:
    """Where to compute, with this many jobs at once."""
    from fedgauge.base.errors import count
    from fedgauge.simulation.options import Compute

    return Compute(None if jobs is None else count("jobs", jobs), engine or "local", address)
