"""Calls from Python show a bar where a person would see it, and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from fedgauge.base import progress

SCRIPT = """
import fedgauge as fg
from fedgauge.base import progress
progress.DELAY = 0.0
federation = fg.random_quadratics(4, 3)
"""
CALLS = {
    "simulate": "fg.simulate(federation, fg.fedavg(gamma=0.1), local_steps=2, rounds=300{})",
    "gauge": "fg.gauge(federation, fg.fedavg(gamma=0.02), options=fg.GaugeOptions(steps=200, local_steps=[4]){})",
    "measure": "fg.measure(federation, fg.fedavg(gamma=0.1), options=fg.MeasureOptions(rounds=2){})",
}


def on_a_terminal(*lines: str) -> str:
    """What a script writes to a terminal."""
    parent, child = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT + "\n".join(lines)], stdout=subprocess.DEVNULL, stderr=child, stdin=child
    )
    os.close(child)
    written = b""
    while True:
        try:
            some = os.read(parent, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not some:
            break
        written += some
    os.close(parent)
    assert program.wait() == 0, written.decode()
    return written.decode()


def test_a_terminal_shows_one_bar_for_each_call() -> None:
    """One program, as each takes seconds to start: what it writes is told apart by marks."""
    shown, silent, within, quiet, quick, _ = on_a_terminal(
        "import sys, time",
        "def mark():",
        "    print('|', file=sys.stderr, flush=True)",
        *(call.format("") for call in CALLS.values()),
        "mark()",
        *(call.format(", progress=None") for call in CALLS.values()),
        "mark()",
        "told = []",
        CALLS["measure"].format(", progress=lambda what, done, total: told.append(what)"),
        "assert told",
        "mark()",
        "progress.DELAY = 0.05",
        "with progress.reported('auto') as tell:",
        "    tell('certified', 0, None)",
        "    time.sleep(0.5)",
        "mark()",
        "with progress.reported('auto') as tell:",
        "    tell('too quick to be seen', 0, None)",
        "mark()",
    ).split("|")
    for what in ("fedavg", "300/300", "1, 4 local steps", "trajectory"):
        assert what in shown
    # A user's function speaks for the whole call: the runs inside it show no bars of their own.
    assert silent.strip() == within.strip() == quick.strip() == ""
    # What tells nothing on the way has a bar too.
    assert "certified" in quiet


def test_nothing_is_written_where_nobody_looks() -> None:
    script = SCRIPT + CALLS["simulate"].format("")
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert found.stdout + found.stderr == ""


def test_a_notebook_shows_a_bar_that_goes_away(tmp_path: Path) -> None:
    made: Any = nbformat.v4
    book = made.new_notebook(cells=[made.new_code_cell(SCRIPT + CALLS["simulate"].format("") + ";")])
    updates: list[str] = []

    class Client(NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                updates.append(msg["content"]["data"].get("text/html", ""))
            return super().process_message(msg, cell, cell_index)

    book.cells[0].source = book.cells[0].source.replace("progress.DELAY = 0.0", "progress.DELAY = progress._OFTEN = 0")
    Client(book, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any('<progress value="150" max="300">' in update for update in updates)
    assert updates[-1] == ""
    (last,) = [output for output in book.cells[0].outputs if output.output_type == "display_data"]
    assert last.data["text/html"] == ""


def test_threads_share_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    with progress.reported("auto") as first:
        assert first is not progress.silent
        with progress.reported("auto") as inner:
            assert inner is progress.silent
    with progress._one_at_a_time, progress.reported("auto") as other:
        assert other is progress.silent
