"""Tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from fedgauge.expectation import Expectation
from fedgauge.symbols import symbol
from fedgauge.values import Estimate, Trace

_NUMERIC = re.compile(r"-?(\d|inf$|nan$)|–?$")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def number(value: float | None) -> str:
    """Four significant digits, or a dash for what does not exist."""
    return "–" if value is None else f"{value:.4g}"


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None, padding: int = 1
) -> None:
    """Print a table: words to the left, numbers to the right; without ``padding`` where it has many columns."""
    rows = list(rows)
    grid = Table(
        title=escape(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=caption,
        caption_justify="left",
        padding=(0, padding),
    )
    for index, column in enumerate(columns):
        numeric = all(_NUMERIC.match(row[index]) for row in rows)
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(escape, row))
    out.print(grid)


@contextmanager
def progress() -> Iterator[Progress]:
    """A live bar with rate and time left, on the error stream of a terminal and nowhere else."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
        yield bar


@contextmanager
def download_progress() -> Iterator[Progress]:
    """As :func:`progress`, for bytes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
        yield bar


def some(length: int, most: int = 12) -> list[int]:
    """At most ``most`` of the indices below ``length``, first and last included, denser at the start.

    >>> some(1000, 5)
    [0, 5, 31, 177, 999]
    """
    if length <= most:
        return list(range(length))
    return sorted({round(length ** (i / (most - 1))) - 1 for i in range(most)})


def show_estimates(title: str, estimates: Iterable[Estimate]) -> None:
    """Print constants with their kind and meaning."""
    table(
        title,
        ("symbol", "value", "kind", "how", "meaning"),
        [(e.symbol, number(e.value), e.kind, e.method, symbol(e.symbol).meaning) for e in estimates],
    )


def show_trace(trace: Trace) -> None:
    """Print some rounds of a run and how it ended."""
    algorithm = trace.settings["algorithm"]
    rates = ", ".join(f"{name} {value:g}" for name, value in algorithm.items() if name != "name")
    rows = []
    for index in some(len(trace.rounds)):
        r = trace.rounds[index]
        rows.append((str(r.round), *map(number, (r.loss, r.grad2, r.spread, r.L_h_ratio))))
    table(
        f"{algorithm['name']} ({rates}), {trace.settings['local_steps']} local steps, seed {trace.settings['seed']}",
        ("round", "loss f", "|grad f|^2", "spread of workers", "L_h seen (lower)"),
        rows,
    )
    endings = {
        "finished": f"Finished {trace.stopped_at} rounds.",
        "target": f"Reached the target loss in round {trace.stopped_at}.",
        "diverged": f"Diverged in round {trace.stopped_at}; try a smaller gamma or eta, or fewer local steps.",
        "stopped": f"Stopped in round {trace.stopped_at}.",
    }
    out.print(endings[trace.status])


def show_expectation(title: str, expectation: Expectation) -> None:
    """Print some entries of an exact expectation."""
    table(
        title,
        (expectation.index, "E f", "E |grad f|^2"),
        [(str(i), number(expectation.loss[i]), number(expectation.grad2[i])) for i in some(len(expectation.loss))],
        caption="exact, in closed form",
    )
