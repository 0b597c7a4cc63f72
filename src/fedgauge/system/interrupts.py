"""Ctrl-C at a moment that cannot be cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back, to be heard at the end; a process that is begun meanwhile holds it back too.

    Such a process hears it once it unblocks SIGINT, when it knows what to do about it; until then it would print the
    trace of what it was importing.

    >>> with held_back():
    ...     signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= {signal.SIGINT}
    True
    """
    came: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    # Blocked here, it reaches another thread of this process, and Python's handler runs here all the same.
    replaced = callable(usual) and threading.current_thread() is threading.main_thread()
    if replaced:
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if replaced:
            signal.signal(signal.SIGINT, usual)
        if came and callable(usual):
            usual(came[0], None)
