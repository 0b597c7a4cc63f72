"""Ctrl-C ends jobs in processes: they save what they have, nobody waits for good and nothing is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HELPERS = """
import time
from pathlib import Path
from fedgauge.base.processes import is_child

if is_child():
    Path("importing").touch()
    time.sleep(0.5)
"""
SCRIPT = """
import sys, time
from pathlib import Path
import helpers
from fedgauge_planning.jobs import ProcessPool

def job(kind):
    if kind == "quick":
        return
    assert helpers
    Path("begun").touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        if kind == "stubborn":
            time.sleep(60)
        time.sleep(0.3)
        Path("saved").touch()
        raise

try:
    # The process of the quick one has nothing to do when Ctrl-C comes.
    with ProcessPool(2, patience=1.0) as pool:
        for key, _ in pool.map(job, {kind: (kind,) for kind in ("quick", sys.argv[1])}):
            pass
except KeyboardInterrupt:
    sys.exit(130)
"""


def interrupted(place: Path, kind: str, moment: str, times: int = 1, group: bool = True) -> None:
    """Run it, interrupt it at a moment, and see that it ends in order."""
    (place / "script.py").write_text(SCRIPT)
    (place / "helpers.py").write_text(HELPERS)
    with subprocess.Popen(
        [sys.executable, "script.py", kind],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            while not (place / moment).exists():
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(0.1)
            for _ in range(times):
                (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
                time.sleep(0.02)
            assert process.communicate(timeout=20) == ("", "")
            assert process.returncode == 130
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(("times", "group"), [(1, True), (2, True), (5, True), (1, False)])
def test_a_job_saves_what_it_has(times: int, group: bool, tmp_path: Path) -> None:
    interrupted(tmp_path, "slow", "begun", times, group)
    assert (tmp_path / "saved").exists()


def test_a_job_that_does_not_end_is_ended(tmp_path: Path) -> None:
    interrupted(tmp_path, "stubborn", "begun")
    assert not (tmp_path / "saved").exists()


def test_processes_that_are_still_importing(tmp_path: Path) -> None:
    interrupted(tmp_path, "slow", "importing")
    assert not (tmp_path / "begun").exists()
