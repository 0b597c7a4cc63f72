"""Memory that is freed and allocated again is not asked of the system each time."""

from __future__ import annotations

import multiprocessing
import platform
import resource
from multiprocessing.connection import Connection

import pytest

from fedgauge.base.threads import keep_freed_memory


def _faults(keep: bool, told: Connection) -> None:
    """Page faults of ten turns in which three blocks of 16 MiB are written to and freed."""
    if keep:
        keep_freed_memory()
    for turn in range(11):
        if turn == 1:  # what the first turn asks for is needed in any case
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [bytearray(16 << 20) for _ in range(3)]
        del blocks
    told.send(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="concerns glibc's allocator")
def test_a_process_that_keeps_its_memory_has_no_page_faults() -> None:
    spawn, faults = multiprocessing.get_context("spawn"), {}
    for keep in (False, True):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_faults, args=(keep, theirs))
        process.start()
        faults[keep] = ours.recv()
        process.join()
        ours.close()
        theirs.close()
    pages = 10 * (3 * 16 << 20) // resource.getpagesize()
    assert faults[False] > pages / 2
    assert faults[True] < pages / 100
