"""The engines: in this process, or in several with a thread each."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

import torch

from fedgauge.engines.work import Work
from fedgauge.errors import MachineError


class Engine(Protocol):
    """Runs a method of :class:`Work` for each lane and returns the results in the order of the lanes."""

    def map(self, method: str, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """``[method(lane, *arguments) for lane in lanes]``, wherever it runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Inline:
    """Everything in this process."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, method: str, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Run the lanes one after another."""
        return [getattr(self._work, method)(lane, *arguments) for lane in lanes]


def _serve(work: Work, connection: Connection, inherited: Sequence[Connection]) -> None:
    """A worker process: answer until the other end closes."""
    # A forked process holds the parent's ends too; it would never see them close, not even when the parent is killed.
    for other in inherited:
        other.close()
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    # The parent may close its end at any moment: while this one waits, or while it answers an interrupted round.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            method, lanes, arguments = connection.recv()
            try:
                answer: Any = [getattr(work, method)(lane, *arguments) for lane in lanes]
            except Exception as error:
                answer = error
            connection.send(answer)


class Processes:
    """Several processes with one thread each, started once, that share the federation's memory.

    They are forked, so that data and model are theirs without a copy; where the system cannot fork they are spawned.
    """

    def __init__(self, work: Work, number: int) -> None:
        context: Any = get_context("fork" if "fork" in get_all_start_methods() else "spawn")
        self._links: list[tuple[Any, Connection]] = []
        forked = context.get_start_method() == "fork"
        for _ in range(number):
            ours, theirs = context.Pipe()
            inherited = [ours, *(connection for _, connection in self._links)] if forked else []
            process = context.Process(target=_serve, args=(work, theirs, inherited), daemon=True)
            process.start()
            theirs.close()
            self._links.append((process, ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._links:
            connection.close()
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()

    def map(self, method: str, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Deal the lanes to the processes and put their answers back in order."""
        number = len(self._links)
        busy = self._links[: len(lanes)]
        results: list[Any] = [None] * len(lanes)
        try:
            for index, (_, connection) in enumerate(busy):
                connection.send((method, lanes[index::number], arguments))
            for index, (_, connection) in enumerate(busy):
                answer = connection.recv()
                if isinstance(answer, Exception):
                    raise answer
                results[index::number] = answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise MachineError(self._obituary()) from None
        return results

    def _obituary(self) -> str:
        for process, _ in self._links:
            process.join(timeout=1)
            if process.exitcode is not None:
                how = f"signal {-process.exitcode}" if process.exitcode < 0 else f"status {process.exitcode}"
                return f"Worker process {process.pid} died ({how}); resume the run, or use fewer processes."
        return "A worker process does not answer; resume the run, or use fewer processes."


def engine(work: Work, processes: int | None) -> Engine:
    """Make an engine of so many processes; one a core if not said, and none beyond this one if that is one."""
    number = processes if processes is not None else (os.cpu_count() or 1)
    return Inline(work) if number == 1 else Processes(work, number)
