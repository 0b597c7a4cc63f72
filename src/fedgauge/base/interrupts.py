"""Signals that end a command: Ctrl-C, and SIGTERM and SIGHUP, which schedulers and closing terminals send."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a command to save its state and to end."""


class Asked:
    """Which signal other than Ctrl-C asked the command to end, if one did."""

    signal: int | None = None

    @property
    def status(self) -> int:
        """The exit status by convention: 128 plus the number of the signal."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def as_interrupts(ends: bool = False) -> Iterator[Asked]:
    """Let SIGTERM and SIGHUP interrupt the main thread as Ctrl-C does, so that whatever handles that handles them.

    Only the first counts: a scheduler may send several, and none must disturb the saving of a state. A signal that is
    ignored, as by nohup, stays ignored.

    Args:
        ends: whether the process ends after the block, so that further signals are not to change its exit status.

    >>> with as_interrupts() as asked:
    ...     try:
    ...         signal.raise_signal(signal.SIGTERM)
    ...     except KeyboardInterrupt:
    ...         print(asked.status)
    143
    """
    asked = Asked()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if asked.signal is None:
            asked.signal = number
            raise KeyboardInterrupt

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, interrupt)
    try:
        yield asked
    finally:
        for each, usual in before.items():
            signal.signal(each, signal.SIG_IGN if ends and asked.signal is not None else usual)


@contextmanager
def held_back() -> Iterator[None]:
    """Delay these signals until the end of the block; a process that is started in the block delays them too.

    Such a process receives them once it unblocks them, when it is able to handle them; before that it would print the
    traceback of whatever it was importing.

    >>> with held_back():
    ...     signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= {signal.SIGINT}
    True
    """
    came: list[int] = []
    # Blocked in this thread, the signal reaches another one, and Python still runs the handler here.
    here = threading.current_thread() is threading.main_thread()
    usual = {number: signal.getsignal(number) for number in ENDING if here and callable(signal.getsignal(number))}
    for number in usual:
        signal.signal(number, lambda number, frame: came.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in usual.items():
            signal.signal(number, handler)
        if came:
            handler = usual[signal.Signals(came[0])]
            assert callable(handler)
            handler(came[0], None)
