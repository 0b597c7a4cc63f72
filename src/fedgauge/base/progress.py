"""Progress of calls from Python: a bar on a terminal or in a notebook, as the command has one."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgauge.base.processes import is_child

if TYPE_CHECKING:
    # Imports numpy, which the command's help does not wait for.
    from fedgauge.base.types import Progress, ProgressOption

DELAY = 1.0
"""Seconds after which a bar appears: what is done sooner needs none."""
_OFTEN = 0.2
"""Seconds between two updates in a notebook."""

_inside: ContextVar[bool] = ContextVar("fedgauge_progress", default=False)
_one_at_a_time = threading.Lock()


def silent(what: str, done: int, total: int | None) -> None:
    """Say nothing."""


@contextmanager
def reported(wanted: ProgressOption) -> Iterator[Progress]:
    """Give a function that is told about progress; calls within this one are silent, as it speaks for them."""
    if wanted is None or callable(wanted):
        with _speaking():
            yield wanted or silent
    elif _inside.get() or _is_child() or not _is_watched():
        yield silent
    elif not _one_at_a_time.acquire(blocking=False):
        yield silent  # another thread has the bar
    else:
        bar: _NotebookBar | _TerminalBar = _NotebookBar() if _in_notebook() else _TerminalBar()
        try:
            with _speaking():
                yield bar
        finally:
            bar.close()
            _one_at_a_time.release()


@contextmanager
def _speaking() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def _is_child() -> bool:
    return is_child() or multiprocessing.current_process().name != "MainProcess"


def _is_watched() -> bool:
    return _in_notebook() or bool(getattr(sys.stderr, "isatty", bool)())


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _TerminalBar:
    """A bar for each thing that is done, which appears after a moment and disappears at the end."""

    def __init__(self) -> None:
        self._lock, self._ended = threading.Lock(), False
        self._bar: Any = None
        self._far: dict[str, tuple[int, int | None]] = {}
        self._tasks: dict[str, Any] = {}
        # A timer, because something that takes long may tell nothing before it is done.
        self._timer = threading.Timer(DELAY, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        with self._lock:
            self._far[what] = done, total
            if self._bar is not None:
                self._draw(what)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def _appear(self) -> None:
        with self._lock:
            if not self._ended:
                self._bar = _bar()
                for what in self._far:
                    self._draw(what)
                self._bar.start()

    def _draw(self, what: str) -> None:
        from rich.markup import escape

        done, total = self._far[what]
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(escape(what), total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from fedgauge.base import bars

    stream = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), bars.Count(), bars.Clock())
    return Progress(*columns, console=stream, transient=True)


class _NotebookBar:
    """A line below the cell, which appears after a moment and is replaced as work goes on."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._handle: Any = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._began < DELAY or now - self._last < _OFTEN:
            return
        self._last = now
        self._show(_line(what, done, total, now - self._began))

    def _show(self, line: str) -> None:
        show: Any = import_module("IPython.display")  # which is there, as a notebook runs

        if self._handle is None:
            self._handle = show.display(show.HTML(line), display_id=True)
        else:
            self._handle.update(show.HTML(line))

    def close(self) -> None:
        if self._handle is not None:
            self._show("")


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    """A bar for a notebook.

    >>> _line("base <run>", 5, 10, 61)
    '<progress value="5" max="10"></progress> base &lt;run&gt;, 5 of 10 (0:01:01)'
    """
    from datetime import timedelta
    from html import escape

    far = f"{done}" if total is None else f"{done} of {total}"
    bar = "" if total is None else f'<progress value="{done}" max="{total}"></progress> '
    return f"{bar}{escape(what)}, {far} ({timedelta(seconds=int(seconds))})"
