"""The command as a user runs it: a process of its own, or a call that leaves its output to be read."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from fedgauge.cli import main

Capture = pytest.CaptureFixture[str]

# Two workers in two dimensions; what each test changes is written there.
FEDERATION: dict[str, Any] = {
    "hessians": [[[3, 0], [0, 1]], [[1, 0], [0, 1]]],
    "linear": [[1, 0], [-3, 2]],
    "constant": [0, 4],
    "sigma2": 0.25,
    "start": [1, 1],
}

# As in a user's shell: output to a pipe is held back until there is much of it, and has no colours.
_ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120", "PYTHONUNBUFFERED": ""}


_PROGRESS = re.compile(r"^fedgauge: .*\(\d+:\d\d:\d\d so far\)\n", re.MULTILINE)


def without_progress(err: str) -> str:
    r"""What a command wrote to its standard error, without the lines that say how far it is on a slow machine.

    >>> without_progress("fedgauge: rounds, 3 of 9 (0:00:10 so far)\nfedgauge: Interrupted.\n")
    'fedgauge: Interrupted.\n'
    """
    return _PROGRESS.sub("", err)


def _default_interrupt() -> None:
    """A shell starts background jobs with Ctrl-C ignored; a user's process does not ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start ``fedgauge`` and return at once."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedgauge", *map(str, arguments)],
        cwd=cwd,
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_default_interrupt,
    )


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["fedgauge.cli", "fedgauge.simulation.experiment.prepare", "sklearn.datasets"])


def fork(*arguments: object, cwd: Path) -> BaseProcess:
    """Start ``fedgauge`` as a fork of a process that has imported it, for tests that start many; it prints nothing."""
    process = _FORKS.Process(target=_run_silently, args=([*map(str, arguments)], cwd))
    process.start()
    return process


def _run_silently(arguments: list[str], cwd: Path) -> None:
    os.chdir(cwd)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.exit(main(arguments))


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``fedgauge`` to its end."""
    with start(*arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=600)  # the demo takes minutes on a machine that is busy
    return subprocess.CompletedProcess(process.args, process.returncode, out, without_progress(err))


def snapshot(directory: Path) -> dict[str, bytes | None]:
    """Everything below a directory, hidden files too: the bytes of each file, None for a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def answer(capsys: Capture, line: str) -> Any:
    """The JSON that a command prints; nothing else may stand on its standard output."""
    assert main([*line.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert without_progress(err) == ""
    return json.loads(out)


def words(capsys: Capture, line: str) -> str:
    """What a command prints for a person."""
    assert main(line.split()) == 0
    out, err = capsys.readouterr()
    assert without_progress(err) == ""
    return str(out)
