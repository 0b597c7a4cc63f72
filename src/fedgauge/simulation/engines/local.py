"""The engines: in this process, in several processes with one thread each, or on a cluster."""

from __future__ import annotations

import io
import math
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from mmap import mmap
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self

import torch

from fedgauge.base.errors import InputError, MachineError
from fedgauge.base.interrupts import ENDING
from fedgauge.base.processes import end_with_parent
from fedgauge.base.threads import keep_freed_memory
from fedgauge.simulation.options import Compute
from fedgauge.simulation.workers import LaneWork

Method = Callable[..., Any]
"""A function of the work and a lane, such as ``Work.evaluate``."""


class Engine(Protocol):
    """Calls a method of its work for each lane and returns the results in the order of the lanes."""

    @property
    def width(self) -> int:
        """How many lanes are computed at once."""

    def map(self, method: Method, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Compute ``[method(work, lane, *arguments) for lane in lanes]``, wherever that is."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def map_lanes(
    engine: Engine,
    method: Method,
    lanes: Sequence[Any],
    *arguments: Any,
    few: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[Any]:
    """What the engine computes, one lane's result after the other.

    Args:
        engine: computes it.
        method: what is computed for each lane.
        lanes: the lanes.
        *arguments: the method's arguments after the lane.
        few: whether the engine gets only as many lanes at a time as it computes at once, because their results are
            large; which lanes go together changes no bit.
        on_progress: called with how many lanes are done and of how many; the engine then gets few at a time too.
    """
    at_once = engine.width if few or on_progress is not None else max(len(lanes), 1)
    for first in range(0, len(lanes), at_once):
        if on_progress is not None:
            on_progress(first, len(lanes))
        results = engine.map(method, lanes[first : first + at_once], *arguments)
        while results:
            # Nothing holds on to a result that the caller is done with.
            yield results.pop(0)


class Inline:
    """The engine that computes everything in this process."""

    width = 1

    def __init__(self, work: LaneWork) -> None:
        self._work = work

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, method: Method, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Run the lanes one after another."""
        return [method(self._work, lane, *arguments) for lane in lanes]


_SHARED = 2**26
"""Bytes of shared memory for messages to a process, and for messages from it; unused pages take up no memory."""
_SMALL = 4096
"""Tensors with fewer bytes than this are sent within the message."""


class _Pickler(pickle.Pickler):
    """Copies tensors to shared memory while there is room, and writes the bytes of the others.

    A tensor that is sent through a pipe is copied six times. A shared-memory file per tensor would take three times as
    long.
    """

    def __init__(self, buffer: io.BytesIO, shared: mmap | None) -> None:
        super().__init__(buffer, protocol=5)
        self._shared, self._end = shared, 0

    def persistent_id(self, value: Any) -> Any:
        if self._shared is None or type(value) is not torch.Tensor or value.device.type != "cpu":
            return None
        begin, size = self._end, value.numel() * value.element_size()
        if size < _SMALL or begin + size > len(self._shared):
            return None
        place = begin, value.dtype, tuple(value.shape)
        _shared_tensor(self._shared, *place).copy_(value.detach())
        self._end = -(-(begin + size) // 64) * 64
        return place

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.device.type == "cpu" and value.dtype != torch.bfloat16:
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads what :class:`_Pickler` wrote; copies tensors from shared memory before the next message overwrites them."""

    def __init__(self, buffer: io.BytesIO, shared: mmap | None) -> None:
        super().__init__(buffer)
        self._shared = shared

    def persistent_load(self, place: Any) -> torch.Tensor:
        assert self._shared is not None
        return _shared_tensor(self._shared, *place).clone()


def _shared_tensor(shared: mmap, begin: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(shared, dtype=dtype, count=math.prod(shape), offset=begin).view(shape)


class _Line:
    """One end of the line between two processes: a pipe, and shared memory each way if the process was forked."""

    def __init__(self, pipe: Connection, out: mmap | None, back: mmap | None) -> None:
        self.pipe, self._out, self._back = pipe, out, back

    def send(self, message: Any) -> None:
        """Send a message; the previous one must have been received."""
        buffer = io.BytesIO()
        _Pickler(buffer, self._out).dump(message)
        self.pipe.send_bytes(buffer.getbuffer())

    def receive(self) -> Any:
        """Wait for a message."""
        return _Unpickler(io.BytesIO(self.pipe.recv_bytes()), self._back).load()


def _serve(work: LaneWork, line: _Line, inherited: Sequence[Connection], parent: int) -> None:
    """The main loop of a worker process: answer messages until the other end closes."""
    # The other end closes when the parent is killed, but a long computation would not notice.
    end_with_parent(parent)
    # A forked process inherits the parent's ends of the pipes. Unless it closes them, it never sees them close, not
    # even when the parent is killed.
    for other in inherited:
        other.close()
    # Ctrl-C, and what a scheduler sends, reach the whole group of processes; only the parent reacts to it.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_freed_memory()
    # The parent may close its end while this process waits for a message, or while it computes an answer.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            method, lanes, arguments = line.receive()
            try:
                answer: Any = [method(work, lane, *arguments) for lane in lanes]
            except Exception as error:
                answer = error
            line.send(answer)


class Processes:
    """Several processes with one thread each, started once, that share the federation's memory.

    They are forked, so they have the data, the model and the algorithm without a copy. If the system cannot fork, they
    are spawned, and everything is sent to them.

    Args:
        work: what they run.
        number: the number of processes.
        method: ``fork`` or ``spawn``; by default, ``fork`` if the system offers it.
    """

    def __init__(self, work: LaneWork, number: int, method: str | None = None) -> None:
        method = method or ("fork" if "fork" in get_all_start_methods() else "spawn")
        context: Any = get_context(method)
        self._links: list[tuple[Any, _Line]] = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            forked = method == "fork"
            there, back = (mmap(-1, _SHARED), mmap(-1, _SHARED)) if forked else (None, None)
            inherited = [ours, *(line.pipe for _, line in self._links)] if forked else []
            serving = work, _Line(theirs, back, there), inherited, os.getpid()
            process = context.Process(target=_serve, args=serving, daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns that other threads may hold locks while forking. Torch's threads are idle here, and
                # the forked process does not use them.
                warnings.simplefilter("ignore", DeprecationWarning)
                try:
                    process.start()
                except BaseException:
                    # Work that cannot be sent to a spawned process fails here, before the first round.
                    ours.close()
                    self.__exit__(True)
                    raise
                finally:
                    theirs.close()
            self._links.append((process, _Line(ours, there, back)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for _, line in self._links:
            line.pipe.close()
        for process, _ in self._links:
            # After a failure, nobody needs the results of the other processes.
            process.join(timeout=0 if any(failure) else 5)
            if process.is_alive():
                process.kill()
                process.join()

    @property
    def width(self) -> int:
        """How many lanes are computed at once."""
        return len(self._links)

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process, _ in self._links]

    def map(self, method: Method, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Deal the lanes to the processes and put their answers back in order."""
        number = len(self._links)
        results: list[Any] = [None] * len(lanes)
        busy: dict[Any, int] = {}
        try:
            for index, (_, line) in enumerate(self._links[: len(lanes)]):
                line.send((method, lanes[index::number], arguments))
                busy[line.pipe] = index
            while busy:
                # Take the first that is ready, so that a dead process is noticed while the others compute.
                for ready in wait(list(busy)):
                    index = busy.pop(ready)
                    answer = self._links[index][1].receive()
                    if isinstance(answer, Exception):
                        raise answer
                    results[index::number] = answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise MachineError(self._failure()) from None
        return results

    def _failure(self) -> str:
        for process, _ in self._links:
            process.join(timeout=1)
            if process.exitcode is not None:
                how = f"signal {-process.exitcode}" if process.exitcode < 0 else f"status {process.exitcode}"
                return f"Worker process {process.pid} died ({how}); resume the run, or use fewer processes."
        return "A worker process does not answer; resume the run, or use fewer processes."


def make_engine(work: LaneWork, compute: Compute) -> Engine:
    """Make the engine that computes this work.

    Args:
        work: the workers' part of a round.
        compute: where to compute it. By default, there is one process per core; a single process is this one.
    """
    if not isinstance(compute.engine, str):
        return compute.engine(work)
    if compute.on_cluster:
        from fedgauge.simulation.engines.cluster import OnCluster

        return OnCluster(work, compute)
    processes = work.federation.processes if compute.processes is None else compute.processes
    number = processes if processes is not None else (os.cpu_count() or 1)
    if number == 1:
        return Inline(work)
    if (device := work.federation.start(0).device).type != "cpu":
        raise InputError(
            f"processes must be 1 on {device.type}, which several processes cannot share, not {number}; leave it out,"
            " or compute on the CPU."
        )
    return Processes(work, number, None if getattr(work.federation, "forks", True) else "spawn")
