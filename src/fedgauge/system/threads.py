"""What all threads of a process share: torch's number of threads, its generator, and modules that are being called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
def own_generator(device: torch.device | None = None) -> Iterator[None]:
    """Torch's own generators, of the CPU and of this device, for this thread alone, restored afterwards.

    Without the lock, federations that are made in several threads would draw from each other's seeds. No other device
    is touched: a process that is forked later could not use it.
    """
    import torch

    module = None if device is None or device.type == "cpu" else torch.get_device_module(device)
    with _GENERATOR:
        state, there = torch.get_rng_state(), None if module is None else module.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(state)
            if module is not None:
                module.set_rng_state(there)


def seed_generators(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's own generators, of the CPU and of this device."""
    import torch

    torch.default_generator.manual_seed(seed)
    if device is not None and device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


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
