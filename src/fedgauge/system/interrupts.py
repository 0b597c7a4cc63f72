"""Ctrl-C during work that must not be interrupted halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; a process that is started in the block delays it too.

    Such a process receives it once it unblocks SIGINT, when it is able to handle it; before that it would print the
    traceback of whatever it was importing.

    >>> with held_back():
    ...     signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= {signal.SIGINT}
    True
    """
    came: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    # Blocked in this thread, the signal reaches another one, and Python still runs the handler here.
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
