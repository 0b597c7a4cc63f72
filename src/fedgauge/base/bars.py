"""How progress is shown: live bars on a terminal, and a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

FIRST, EVERY = 10.0, 30.0
"""Seconds until the first plain line, and between two of them."""


class PlainLines:
    """Writes a line about some progress now and then, for logs and pipes, where a live bar cannot be drawn.

    Args:
        bar: whose tasks the lines are about.
        stream: where the lines are written.
        first: seconds until the first line; a command that is done sooner writes none.
        every: seconds between two lines.
    """

    def __init__(self, bar: Progress, stream: Console, first: float | None = None, every: float | None = None) -> None:
        self._bar, self._stream = bar, stream
        self._first = FIRST if first is None else first
        self._every = EVERY if every is None else every
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        wait = self._first
        while not self._done.wait(wait):
            wait = self._every
            line = self.line()
            if line:
                self._stream.print(line, soft_wrap=True, markup=False)

    def line(self) -> str:
        """What is being done now, how far it is and since when, in one line."""
        shown = [task for task in self._bar.tasks if task.visible]
        if not shown:
            return ""
        task = next((task for task in reversed(shown) if not task.finished), shown[-1])
        what = Text.from_markup(task.description).plain
        far = "" if task.total is None else f", {task.completed:,.0f} of {task.total:,.0f}"
        latest = f", {task.fields['latest']}" if task.fields.get("latest") else ""
        return f"fedgauge: {what}{far}{latest} ({_clock(time.monotonic() - self._began)} so far)"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


@contextmanager
def shown(stream: Console, *columns: ProgressColumn) -> Iterator[Progress]:
    """A live bar on a stream if that is a terminal, and plain lines if it is not."""
    with Progress(*columns, console=stream, disable=not stream.is_terminal, transient=True) as bar:
        if stream.is_terminal:
            yield bar
        else:
            with PlainLines(bar, stream):
                yield bar


class Count(ProgressColumn):
    """How far it is, and how far it has to go where that is known."""

    def render(self, task: Task) -> Text:
        """Write the count."""
        if task.total is None:
            return Text(f"{task.completed:.0f}" if task.completed else "")
        return Text(f"{task.completed:.0f}/{task.total:.0f}", no_wrap=True)


class Clock(ProgressColumn):
    """The time that has passed, and the time that is left if it is known."""

    def __init__(self, elapsed: bool = True) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._elapsed = elapsed

    def render(self, task: Task) -> Text:
        """Write the times."""
        parts = []
        if self._elapsed and task.elapsed is not None:
            parts.append(f"{_clock(task.elapsed)} elapsed")
        if task.total is not None and task.time_remaining is not None and not task.finished:
            parts.append(f"{_clock(task.time_remaining)} left")
        return Text(", ".join(parts))


class Rate(ProgressColumn):
    """Rounds per second, or seconds per round."""

    def render(self, task: Task) -> Text:
        """Write the rate."""
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each", no_wrap=True)
