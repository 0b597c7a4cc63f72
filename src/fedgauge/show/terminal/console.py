"""Tables and progress for a terminal, and runs and expectations in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from fedgauge.base import bars
from fedgauge.base.symbols import symbol
from fedgauge.base.terminal import printable
from fedgauge.simulation.runs.reader import source_of
from fedgauge.theory.expectation import Expectation
from fedgauge.values import Estimate, Observer, Round, Trace
from fedgauge.values.display import counted

"""Called by ``simulate`` with the number of rounds done, and the record where there is one."""
Steps = Callable[[str, int, int | None], None]
"""Called with what is being done, how far it is, and how far it has to go."""

_SHOWN = 8
"""How many decisions are shown at each end of a long list of them."""
PARTITION_KEYS = ("labels", "percent", "labels_per_worker", "per_worker", "fill", "alpha", "least", "shards")
"""The keys of an experiment that say how its data is divided."""
_NUMERIC = re.compile(r"-?(\d|inf$|nan$)|–?$")


class PrintableConsole(Console):
    """A console that escapes control characters in whatever it shows; its own, for colours and bars, it adds later."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Turn text into segments of one style, as rich does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out = PrintableConsole(highlight=False)
err = PrintableConsole(stderr=True, highlight=False)


def number(value: float | None) -> str:
    """Four significant digits, or a dash for what does not exist."""
    return "–" if value is None else f"{value:.4g}"


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    caption: str | None = None,
    padding: int = 1,
) -> None:
    """Print a table: words to the left, numbers to the right; a plain string is shown letter by letter.

    A table of many columns goes without ``padding``.
    """
    rows = list(rows)
    grid = Table(
        title=escape(title) or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=caption,
        caption_justify="left",
        padding=(0, padding),
    )
    for index, column in enumerate(columns):
        numeric = all(_NUMERIC.match(str(row[index])) for row in rows)
        # A number stays in one line with its error.
        whole = any(" ± " in str(row[index]) for row in rows)
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        # Escaped before its width is measured.
        grid.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    out.print(grid)


def side_by_side(first: Sequence[str], columns: Sequence[Sequence[str]]) -> list[list[Sequence[str]]]:
    """The columns in groups, each of which fits beside the first one: squeezed, a table breaks inside words."""

    def width(cells: Sequence[str]) -> int:
        return (
            max(cell_len(line) for cell in cells for line in cell.split("\n")) + 3
        )  # a space on either side, and one between columns

    groups: list[list[Sequence[str]]] = []
    left = 0
    for column in columns:
        if width(column) > left:
            groups.append([])
            left = out.width - 1 - width(first)
        groups[-1].append(column)
        left -= width(column)
    return groups


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar with the time that has passed and is left."""
    with bars.shown(err, TextColumn("{task.description}"), BarColumn(), bars.Count(), bars.Clock()) as bar:
        yield bar


@contextmanager
def steps() -> Iterator[Steps]:
    """A bar for each thing that is done, as :func:`progress`; gives a function of (what, how far, how far to go)."""
    with progress() as bar:
        tasks: dict[str, Any] = {}
        starting = bar.add_task("starting", total=None)

        def step(what: str, done: int, total: int | None) -> None:
            bar.update(starting, visible=False)
            if what not in tasks:
                tasks[what] = bar.add_task(escape(what), total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield step


@contextmanager
def doing() -> Iterator[Steps]:
    """One bar whose words change with what is being done; gives a function of (what, how far, how far to go)."""
    with progress() as bar:
        task = bar.add_task("starting", total=None)

        def step(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=escape(what), completed=done, total=total)

        yield step


@contextmanager
def run_progress() -> Iterator[Callable[[str, int], Observer]]:
    """A bar for each run, with rate, time left, and the latest loss and accuracy.

    Gives a function that begins a run's bar from its name and its number of rounds, and returns its observer.
    """
    columns: Sequence[ProgressColumn] = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        bars.Count(),
        bars.Rate(table_column=Column(no_wrap=True)),
        bars.Clock(elapsed=False),
        TextColumn("{task.fields[latest]}", table_column=Column(no_wrap=True)),
    )
    with bars.shown(err, *columns) as bar:
        starting = bar.add_task("starting", total=None, latest="")

        def begin(name: str, rounds: int) -> Observer:
            bar.update(starting, visible=False)
            task = bar.add_task(escape(name), total=rounds, latest="")

            def observer(done: int, record: Round | None) -> None:
                if record is None:
                    bar.update(task, completed=done)
                    return
                tested = "" if record.accuracy is None else f", accuracy {record.accuracy:.1%}"
                bar.update(task, completed=done, latest=f"loss {number(record.loss)}{tested}")

            def on_progress(done: int, total: int) -> None:
                bar.update(task, latest=f"recording, {done / total:.0%}")

            observer.on_progress = on_progress  # type: ignore[attr-defined]
            return observer

        yield begin


@contextmanager
def download_progress() -> Iterator[Progress]:
    """A bar for each download, in bytes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with bars.shown(err, *columns) as bar:
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


def show_trace(trace: Trace, num_workers: int | None = None, federation: str = "") -> None:
    """Print some rounds of a run and how it ended.

    Args:
        trace: of the run.
        num_workers: N.
        federation: what it was run on, from :func:`federation_line`.
    """
    if federation:
        out.print(Text(federation), soft_wrap=not out.is_terminal)
    show_rounds(title_of(trace.settings, num_workers), trace.rounds)
    show_decisions(trace.rounds)
    out.print(ending(trace))


def federation_line(
    experiment: Mapping[str, Any], num_workers: int | None = None, parameters: Mapping[str, Any] | None = None
) -> str:
    """What an experiment is run on: data, model, partition, N and batch size, as far as they are known.

    Args:
        experiment: as an object of sections.
        num_workers: N; that of the experiment by default.
        parameters: of the partition; those that the experiment names by default.

    >>> federation_line({"data": {"name": "digits", "percent": 50}}, num_workers=10)
    'digits, mlp; paper partition (percent 50); 10 workers; batch size 20'
    >>> federation_line({"data": {"name": "digits", "scheme": "iid", "shift": ["swap=0.2"]}})
    'digits, mlp; iid partition; shift swap 0.2; 10 workers; batch size 20'
    >>> federation_line({"data": {"name": "fed.json"}}, num_workers=1)
    'fed.json; 1 worker'
    """
    data, run = (experiment.get(name) or {} for name in ("data", "run"))
    is_quadratic = str(data.get("name", ".json")).endswith(".json")
    workers = data.get("workers") if num_workers is None else num_workers
    if workers is None and not is_quadratic and data.get("scheme") != "id":
        workers = 10
    who = [counted(workers, "worker")] if workers is not None else []
    if is_quadratic:
        return "; ".join([source_of(experiment), *who])
    given = {key: data[key] for key in PARTITION_KEYS if data.get(key) is not None}
    named = given if parameters is None else parameters
    details = ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in named.items())
    partition = [f"{data.get('scheme') or 'paper'} partition" + (f" ({details})" if details else "")]
    if ":" in data["name"] and not data.get("scheme") and not named:
        partition = []  # a function of the user's own may give every worker its own data
    shifted = ["shift " + ", ".join(text.replace("=", " ") for text in data["shift"])] if data.get("shift") else []
    said = [source_of(experiment), *partition, *shifted, *who, f"batch size {run.get('batch_size') or 20}"]
    return "; ".join(said)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def title_of(settings: Mapping[str, Any], num_workers: int | None = None) -> str:
    """A run's algorithm with its parameters, its local steps, who takes part if not all do, and its seed."""
    algorithm = settings["algorithm"]
    shown = [f"{name} {_plain(value)}" for name, value in algorithm.items() if name not in ("name", "code")]
    rates = ", ".join([*shown, "your own functions"] if "code" in algorithm else shown)
    who = _taking_part(settings.get("participation") or {}, num_workers)
    return f"{algorithm['name']} ({rates}), {_local_steps(settings['local_steps'])}{who}, seed {settings['seed']}"


def _local_steps(steps: Any) -> str:
    if steps is None:
        return "unknown local steps"
    if isinstance(steps, Mapping):
        return f"{steps['name']} local steps"
    if isinstance(steps, list | tuple):
        return f"{min(steps)} to {max(steps)} local steps, one number per worker"
    return counted(steps, "local step")


def _taking_part(participation: Mapping[str, Any], num_workers: int | None) -> str:
    sampling, participants = participation.get("sampling", "full"), participation.get("participants")
    if sampling == "full" or participants is None:
        return ""
    who = f"{participants} of {num_workers} workers" if num_workers else counted(participants, "worker")
    return f", {who} per round, {sampling.replace('-shared', ', shared').replace('-', ' ')}"


def show_rounds(title: str, rounds: Sequence[Round]) -> None:
    """Print some rounds; accuracy and what was seen of the workers only if they were recorded."""
    shown = [rounds[index] for index in some(len(rounds))]
    tested = any(r.accuracy is not None for r in shown)
    paced = any(r.elapsed is not None for r in shown)
    watched = not shown or any(r.spread is not None for r in shown)
    head = (
        "round",
        "loss f",
        *["accuracy"] * tested,
        *["I", "cost, s"] * paced,
        "|grad f|^2",
        *["spread of workers", "L_h seen (lower)"] * watched,
    )
    rows = []
    for r in shown:
        accuracy = ["–" if r.accuracy is None else f"{r.accuracy:.2%}"] * tested
        seen = [number(r.spread), number(r.L_h_ratio)] * watched
        pace = [str(r.looked[-1]) if r.looked else "–", number(r.elapsed)] * paced
        loss = number(r.loss) + ("" if r.loss_error is None else f" ± {r.loss_error:.2g}")
        rows.append((str(r.round), loss, *accuracy, *pace, number(r.grad2), *seen))
    table(title, head, rows)
    sampled = next((r for r in shown if r.sample is not None), None)
    if sampled is not None:
        tests = "" if sampled.tests is None else f", and accuracy of {sampled.tests:,} test examples"
        out.print(
            f"These are values of a fixed sample of {sampled.sample:,} examples, with the standard error of f{tests};"
            " |grad f|^2 and what was seen belong to the sample alone."
        )


def show_decisions(rounds: Sequence[Round]) -> None:
    """Print where the local steps of a run changed and why, of many the first and the last; nothing for other runs."""
    if not rounds or rounds[0].looked is None:
        return
    changes = [
        (before, following)
        for before, following in pairwise(rounds)
        if before.why and before.looked and following.looked
    ]
    shown = changes if len(changes) <= 2 * _SHOWN else [*changes[:_SHOWN], *changes[-_SHOWN:]]
    rows = [
        (str(after.round), number(after.elapsed), f"{before.looked[-1]} -> {after.looked[-1]}", str(before.why))
        for before, after in shown
        if before.looked and after.looked
    ]
    if rows:
        left = f"{len(changes) - len(shown)} changes between these are left out" if len(shown) < len(changes) else None
        table("How local steps adapted", ("round", "cost, s", "I", "why"), rows, caption=left)


def ending(trace: Trace) -> str:
    """How a run ended, in one sentence."""
    return {
        "finished": f"Finished {counted(trace.stopped_at, 'round')}.",
        "target": f"Reached the target{_reached(trace)} in round {trace.stopped_at}.",
        "diverged": f"Diverged in round {trace.stopped_at}; try a smaller gamma or eta, or fewer local steps.",
        "stopped": f"Stopped in round {trace.stopped_at}.",
    }[trace.status]


def _reached(trace: Trace) -> str:
    """Which target its last record reached; empty if a rule of the caller's own stopped the run."""
    if not trace.rounds:
        return ""
    last = trace.rounds[-1]
    for name, value, sign in (("accuracy", last.accuracy, -1), ("loss", last.loss, 1), ("grad2", last.grad2, 1)):
        target = trace.settings.get(f"target_{name}")
        if target is not None and value is not None and sign * value <= sign * target:
            return " |grad f|^2" if name == "grad2" else f" {name}"
    return ""


def show_expectation(title: str, expectation: Expectation) -> None:
    """Print some entries of an exact expectation."""
    table(
        title,
        (expectation.index, "E f", "E |grad f|^2"),
        [(str(i), number(expectation.loss[i]), number(expectation.grad2[i])) for i in some(len(expectation.loss))],
        caption="exact, in closed form",
    )
