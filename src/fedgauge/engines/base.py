"""The engines: in this process, or in several with a thread each."""

from __future__ import annotations

import io
import os
import pickle
import signal
import warnings
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self, cast

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


class _Pickler(pickle.Pickler):
    """Writes tensors as their bytes, in a third of the time of a file of shared memory for each."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.device.type == "cpu" and value.dtype != torch.bfloat16:
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


def _send(connection: Connection, message: Any) -> None:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(message)
    connection.send_bytes(buffer.getbuffer())


def _receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


def _serve(work: Work, connection: Connection, inherited: Sequence[Connection]) -> None:
    """A worker process: answer until the other end closes."""
    # A forked process holds the parent's ends too; it would never see them close, not even when the parent is killed.
    for other in inherited:
        other.close()
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    # The other end is closed while this one listens, or while it computes what nobody waits for any more.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            method, lanes, arguments = _receive(connection)
            try:
                answer: Any = [getattr(work, method)(lane, *arguments) for lane in lanes]
            except Exception as error:
                answer = error
            _send(connection, answer)


class Processes:
    """Several processes with one thread each, started once, that share the federation's memory.

    They are forked, so that data and model are theirs without a copy; where the system cannot fork they are spawned,
    and the data goes through shared memory.
    """

    def __init__(self, work: Work, number: int, method: str | None = None) -> None:
        method = method or ("fork" if "fork" in get_all_start_methods() else "spawn")
        context: Any = get_context(method)
        self._links: list[tuple[Any, Connection]] = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            inherited = [ours, *(connection for _, connection in self._links)] if method == "fork" else []
            process = context.Process(target=_serve, args=(work, theirs, inherited), daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns of threads that hold locks while forking; torch's are idle here, and unused there.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._links.append((process, ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for _, connection in self._links:
            connection.close()
        for process, _ in self._links:
            # After a failure nobody wants what the others still compute.
            process.join(timeout=0 if any(failure) else 5)
            if process.is_alive():
                process.terminate()
                process.join()

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [process.pid for process, _ in self._links]

    def map(self, method: str, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Deal the lanes to the processes and put their answers back in order."""
        number = len(self._links)
        results: list[Any] = [None] * len(lanes)
        busy: dict[Any, int] = {}
        try:
            for index, (_, connection) in enumerate(self._links[: len(lanes)]):
                _send(connection, (method, lanes[index::number], arguments))
                busy[connection] = index
            while busy:
                # Whoever is ready first, so that a death is noticed while the others compute.
                for ready in wait(list(busy)):
                    answer = _receive(cast(Connection, ready))
                    if isinstance(answer, Exception):
                        raise answer
                    results[busy.pop(ready) :: number] = answer
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
