"""Ends the processes of a cluster when the process that started it is gone, even by kill -9.

It runs as a program of its own, ``python reaper.py WORD``, until its standard input is closed, which the system does
when its parent ends. Then it kills the cluster's processes: those with the word, a unique one, on their command line,
and all of their descendants. Some of these outlive their own parent by a minute and hide their command line, so the
family is looked up while it is together.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_FIRST, _LAST = 0.25, 30.0
"""Seconds between the first two looks at the family, and at most between two looks; the time doubles each time."""
_PATIENCE = 10.0
"""Seconds within which all processes must be gone."""


@contextmanager
def reaped(word: str) -> Iterator[None]:
    """Make sure that no process with this word on its command line, nor a child of one, outlives this process."""
    # A session of its own: a signal to all processes of the command must not end the one that cleans up after them.
    command = [sys.executable, "-I", "-S", __file__, word]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


class _Process(NamedTuple):
    """A process; its number may be used again, but not with the same beginning."""

    number: int
    parent: int
    began: str
    command: str


def _processes() -> list[_Process]:
    """All processes but those that have ended and whose parent has not asked how."""
    if not os.path.exists("/proc/self/stat"):
        columns = ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,lstart=,args="]
        lines = subprocess.run(columns, capture_output=True, text=True, check=False).stdout.splitlines()
        split = [each for each in (line.split(None, 8) for line in lines) if not each[2].startswith("Z")]
        return [_Process(int(each[0]), int(each[1]), " ".join(each[3:8]), "".join(each[8:])) for each in split]
    processes = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            with open(f"/proc/{number}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if fields[0] == b"Z":
                continue
            with open(f"/proc/{number}/cmdline", "rb") as file:
                command = file.read().decode(errors="replace")
            processes.append(_Process(int(number), int(fields[1]), fields[19].decode(), command))
    return processes


def _family(word: str, known: set[tuple[int, str]], spared: set[int]) -> set[tuple[int, str]]:
    """The processes that are or were recognised, as far as they are alive, and their descendants."""
    others = [each for each in _processes() if each.number not in spared]
    members = {each.number for each in others if word in each.command or (each.number, each.began) in known}
    while new := {each.number for each in others if each.parent in members} - members:
        members |= new
    return {(each.number, each.began) for each in others if each.number in members}


def _wait_and_reap(word: str) -> None:
    family: set[tuple[int, str]] = set()
    spared = {os.getpid(), os.getppid()}
    pause = _FIRST
    while True:
        family = _family(word, family, spared)
        if select.select([sys.stdin], [], [], pause)[0]:
            break
        pause = min(2 * pause, _LAST)
    end = time.monotonic() + _PATIENCE
    while (family := _family(word, family, spared)) and time.monotonic() < end:
        for number, _ in family:
            with suppress(OSError):  # it has ended
                os.kill(number, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    _wait_and_reap(sys.argv[1])
