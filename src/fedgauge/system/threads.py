"""What all threads of a process share: torch's number of threads, its generator, and modules that are being called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any


class ProcessLock:
    """A lock that its thread may take again, and that is free in every new process.

    A process that is forked while another thread holds a lock would otherwise wait for ever: that thread is not there.
    """

    def __init__(self) -> None:
        self._lock, self._process = RLock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are locks of their own."""
        return ProcessLock, ()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._lock, self._process = RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_GENERATOR = ProcessLock()


@contextmanager
def own_generator() -> Iterator[None]:
    """Torch's own generator for this thread alone, restored afterwards.

    Without the lock, federations that are made in several threads would draw from each other's seeds.
    """
    import torch

    with _GENERATOR, torch.random.fork_rng():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, so that sums are the same on every machine; rows are too small to benefit from more.

    Two threads that wait for each other on a busy machine were seen to take fifty times as long as one.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
