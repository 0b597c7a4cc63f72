"""Processes that were started for a command end with it, even if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgauge_ray.reaper import reaped

# Begins a family: a process with the word on its command line, whose child has neither the word nor a parent for long.
_FAMILY = """
import os, subprocess, sys, time
from fedgauge_ray.reaper import reaped
with reaped({word!r}):
    middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).wait()"
    subprocess.Popen([sys.executable, "-c", middle, {word!r}])
    {then}
"""


def children(place: Path) -> dict[int, str]:
    """The processes that work in a directory, and their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == place:
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def eventually(number: int, place: Path, seconds: float) -> dict[int, str]:
    """Wait until so many processes work in a directory."""
    end = time.monotonic() + seconds
    while len(found := children(place)) != number and time.monotonic() < end:
        time.sleep(0.05)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_a_family_ends_when_its_command_is_killed(tmp_path: Path) -> None:
    code = _FAMILY.format(word=f"word-{os.getpid()}", then="time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as process:
        assert len(eventually(4, tmp_path, 30)) == 4, "the command, the reaper, the child and the grandchild"
        time.sleep(1.5)  # the reaper looks at the family now and then
        # The child is gone first, so that nothing connects the grandchild with the rest.
        (child,) = (number for number, line in children(tmp_path).items() if "wait()" in line and "word" in line[-30:])
        os.kill(child, signal.SIGKILL)
        process.kill()
    assert eventually(0, tmp_path, 10) == {}


def test_a_command_that_ends_waits_for_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    with reaped("no-process-has-this-word"):
        pass
    assert time.monotonic() - began < 10
    # The child has ended before its parent, the command, has asked how: nothing is left to wait for.
    began = time.monotonic()
    code = _FAMILY.format(word=f"other-{os.getpid()}", then="time.sleep(0.5)")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert time.monotonic() - began < 10
    assert eventually(0, tmp_path, 5) == {}
