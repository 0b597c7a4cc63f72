"""Views, tables and progress for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from fedgauge.base import bars
from fedgauge.base.terminal import printable
from fedgauge.show.charts import FieldMap
from fedgauge.show.views.view import Cell, Deferred, Held, Share, StandingCell, Table, View
from fedgauge.show.views.view import number as number
from fedgauge.values import Round

Observer = Callable[[int, Round | None], None]
"""Called by ``simulate`` with the number of rounds done, and the record where there is one."""
Steps = Callable[[str, int, int | None], None]
"""Called with what is being done, how far it is, and how far it has to go."""

_BAR = 12  # letters of a bar for a whole
_STYLES = {"certified": "green", "reached": "green", "not certified": "red", "contradicted": "red", "": ""}
"""The colours of what a bound is worth; of all else it is yellow."""
_LETTERS = {1: ("L", "black on green"), 0: ("=", "black on white"), -1: ("M", "white on magenta")}
"""Who wins at a point of a map."""
_NUMERIC = re.compile(r"-?(\d|inf$|nan$)|–?$")


class PrintableConsole(Console):
    """A console that escapes control characters in whatever it shows; its own, for colours and bars, it adds later."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Turn text into segments of one style, as rich does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out = PrintableConsole(highlight=False)
err = PrintableConsole(stderr=True, highlight=False)


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
    grid = Grid(
        title=escape(title) or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=caption,
        caption_justify="left",
        padding=(0, padding),
    )
    for index, column in enumerate(columns):
        numeric = all(_NUMERIC.match(str(row[index])) for row in rows)
        # A number stays in one line with its error, and with its bar.
        whole = any(" ± " in str(row[index]) or "█" in str(row[index]) for row in rows)
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

            def during(done: int, total: int) -> None:
                bar.update(task, latest=f"recording, {done / total:.0%}")

            observer.during = during  # type: ignore[attr-defined]
            return observer

        yield begin


# -- views -----------------------------------------------------------------------------------------------------------


def show(view: View) -> None:
    """Print what a result says: the answer first, then its numbers, then what a reader should know."""
    if view.title:
        _say(Text(view.title, "bold"))
    for place, sentence in enumerate(view.sentences):
        _say(Text(sentence, "" if place else _STYLES.get(view.standing, "yellow")))
    facts = [f"{name}: {_words(value)}" for name, value in view.facts.items() if value is not None and str(value)]
    if facts:
        _say(Text(f"{'; '.join(facts)}."))
    for each in view.tables:
        if not each.detail:
            _show_table(each)
    for chart in () if isinstance(view.charts, Deferred) else view.charts:
        if isinstance(chart, FieldMap):
            _show_map(chart)
    for note in (*view.limits, *view.notes):
        _say(Text(note))


def _say(text: Text) -> None:
    out.print(text, soft_wrap=not out.is_terminal)


def _words(cell: Cell) -> str:
    return number(cell) if isinstance(cell, float) else "–" if cell is None else str(cell)


def bar(share: float) -> str:
    """A bar of blocks, at most twice as long as that of a whole; a thin line for what is little but not nothing.

    >>> bar(0.5), bar(0.01), bar(0.0), bar(1.0)
    ('██████', '▏', '', '████████████')
    """
    return "█" * round(_BAR * min(max(share, 0.0), 2.0)) or "▏" * (share > 0)


def _cell(cell: Cell, style: str, width: int = 4) -> str | Text:
    """A cell as it is printed, with a bar for a share after words of this width, and colours for what holds."""
    if isinstance(cell, Share):
        return Text(f"{cell!s:>{width}} {bar(cell.value)}", style or "blue")
    if isinstance(cell, Held):
        return Text(str(cell), "green" if cell.holds else "bold red")
    if isinstance(cell, StandingCell):
        return Text(cell.name, _STYLES.get(cell.name, "yellow"))
    words = _words(cell)
    return Text(printable(words), style) if style else words


def _show_table(shown: Table) -> None:
    widths = [
        max((len(str(row[place])) for row in shown.rows if isinstance(row[place], Share)), default=4)
        for place in range(len(shown.heads))
    ]
    rows = [
        [
            _cell(cell, "bold cyan" if place == shown.chosen else "", max(width, 4))
            for cell, width in zip(row, widths, strict=True)
        ]
        for place, row in enumerate(shown.rows)
    ]
    columns = [[head, *(str(row[place]) for row in rows)] for place, head in enumerate(shown.heads)]
    if not shown.splits:
        fits = sum(max(map(cell_len, column)) + 3 for column in columns) <= out.width
        table(shown.title, shown.heads, rows, shown.note or None, padding=1 if fits else 0)
        return
    for place, group in enumerate(side_by_side(columns[0], columns[1:])):
        heads, *cells = zip(columns[0], *group, strict=True)
        # A row that has nothing in these columns is left out.
        held = [row for row in cells if any(cell != "–" for cell in row[1:])]
        table("" if place else shown.title, heads, held, shown.note or None)


def _show_map(chart: FieldMap) -> None:
    """Two letters per point: the first by what the map shows, the second by the other opinion."""
    text, width = Text(), max(len(f"{value:.3g}") for value in chart.y)
    for up, first, second in reversed(list(zip(chart.y, *chart.winners, strict=True))):
        text.append(f"{up:>{width}.3g} ")
        for one, other in zip(first, second, strict=True):
            text.append(_LETTERS[one][0] + _LETTERS[other][0], _LETTERS[one][1])
        text.append("\n")
    ends = f"{chart.x[0]:.3g}", f"{chart.x[-1]:.3g}"
    room = 2 * len(chart.x) - sum(map(len, ends))
    text.append(f"{'':{width}} {ends[0]}{'':^{max(room, 2)}}{ends[1]}")
    out.print(text, no_wrap=True, crop=False)
    names = {1: "local SGD", 0: "within 1%", -1: "mini-batch SGD"}
    parts = [
        part for side, (letter, style) in _LETTERS.items() for part in ((f" {letter} ", style), f" {names[side]}  ")
    ]
    out.print(Text.assemble(*parts, "first letter: exact; second letter: by the bounds"))
