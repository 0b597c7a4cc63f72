"""The number of threads that torch uses, and its generator, which all threads share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_GENERATOR = RLock()


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
