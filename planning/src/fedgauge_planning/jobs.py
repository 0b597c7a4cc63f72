"""Running many jobs: one after another in this process, in several processes, or on a cluster.

A job is a function of a module, its arguments and, if it writes files, a directory. On a cluster, the files of that
directory are sent with the job and come back with its result. So machines need not share a disk, and a job that is lost
half-way is run again from the same files.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from fedgauge.base import processes as children
from fedgauge.base.errors import MachineError
from fedgauge.base.files import make_directories, read_file, write_atomically
from fedgauge.base.interrupts import held_back
from fedgauge.base.processes import Child, Message
from fedgauge.simulation.options import HERE, Compute

Key = TypeVar("Key")
Jobs: TypeAlias = Mapping[Key, tuple[Any, ...]]
"""The arguments of each job."""
Report = Callable[[int], None]
"""Called with the number of steps that all jobs together have taken so far."""
_progress: Callable[[int], None] = children.progress
"""Tells the parent if this process was started by a pool; a pool that runs jobs here replaces it."""


def progress(steps: int) -> None:
    """Report, from inside a job, that it has taken this many further steps."""
    _progress(steps)


def _report_to(counter: Callable[[int], None]) -> None:
    global _progress
    _progress = counter


class Pool(Protocol):
    """Runs jobs and yields their results as they end."""

    def map(
        self, function: Callable[..., Any], jobs: Jobs[Key], directories: Mapping[Key, Path] | None = None
    ) -> Iterator[tuple[Key, Any]]:
        """Yield the key and the result of each job as it ends; a directory is passed as the last argument."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: Any) -> None: ...


def make_pool(compute: Compute = HERE, report: Report = lambda steps: None) -> Pool:
    """Make a pool.

    Args:
        compute: where the jobs run. Its ``processes`` is the number of jobs at once, by default one per core. A single
            local job at a time runs in this process.
        report: called with the progress of all jobs: on a cluster when a job has ended, otherwise while jobs run.

    >>> with make_pool(Compute(processes=1)) as pool:
    ...     dict(pool.map(pow, {"a": (2, 3), "b": (3, 2)}))
    {'a': 8, 'b': 9}
    """
    if compute.on_cluster:
        return ClusterPool(compute, report)
    number = compute.processes or os.cpu_count() or 1
    return InProcess(report) if number == 1 else ProcessPool(number, report)


def _arguments(job: tuple[Any, ...], directory: Path | None) -> tuple[Any, ...]:
    return job if directory is None else (*job, str(directory))


class InProcess:
    """A pool that runs one job after another in this process."""

    def __init__(self, report: Report = lambda steps: None) -> None:
        self._report, self._done = report, 0

    def __enter__(self) -> Self:
        self._before = _progress
        _report_to(self._count)
        return self

    def __exit__(self, *_: Any) -> None:
        _report_to(self._before)

    def _count(self, steps: int) -> None:
        self._done += steps
        self._report(self._done)

    def map(
        self, function: Callable[..., Any], jobs: Jobs[Key], directories: Mapping[Key, Path] | None = None
    ) -> Iterator[tuple[Key, Any]]:
        """Run each job when its result is requested."""
        for key, job in jobs.items():
            yield key, function(*_arguments(job, directories[key] if directories else None))


# -- in processes ------------------------------------------------------------------------------------------------


class ProcessPool:
    """A pool of processes, each of which runs one job after another.

    Args:
        number: the number of processes.
        report: called with the progress of all jobs.
        patience: seconds that an interrupted job has for saving its state.
    """

    def __init__(self, number: int, report: Report = lambda steps: None, patience: float = 30.0) -> None:
        self._number, self._report, self._patience, self._done = number, report, patience, 0
        self._idle: list[Child] = []
        self._busy: dict[Connection, tuple[Any, Child]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def _end(self) -> None:
        """End all processes; jobs that are still running save their state within ``patience`` seconds."""
        with held_back():  # a second Ctrl-C changes nothing
            running, idle = [child for _, child in self._busy.values()], self._idle
            self._busy, self._idle = {}, []
            for child in running:
                child.interrupt()
            limit = time.monotonic() + self._patience
            for child in [*running, *idle]:
                child.end(limit - time.monotonic())

    def map(
        self, function: Callable[..., Any], jobs: Jobs[Key], directories: Mapping[Key, Path] | None = None
    ) -> Iterator[tuple[Key, Any]]:
        """Start the jobs in order."""
        waiting = iter(jobs.items())
        try:
            while True:
                for _, (key, job) in zip(range(self._number - len(self._busy)), waiting, strict=False):
                    with held_back():
                        child = self._idle.pop() if self._idle else Child()
                        self._busy[child.line] = key, child
                    child.begin(function, _arguments(job, directories[key] if directories else None))
                if not self._busy:
                    return
                for line in wait([*self._busy]):
                    assert isinstance(line, Connection)
                    kind, content = self._receive(line)
                    if kind == "steps":
                        self._done += content
                        self._report(self._done)
                        continue
                    key, child = self._busy.pop(line)
                    self._idle.append(child)
                    if kind == "error":
                        raise content
                    yield key, content
        finally:
            if self._busy:  # nobody wants the other results
                self._end()

    def _receive(self, line: Connection) -> Message:
        _, child = self._busy[line]
        try:
            return child.receive()
        except (EOFError, OSError):
            del self._busy[line]
            status = child.end(1.0)
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        memory = ", as when memory runs out" if status == -signal.SIGKILL else ""
        raise MachineError(
            f"A process was ended {how}{memory}; do the same again to resume the runs that were saved, or use jobs=1,"
            " which takes less memory."
        )


# -- on a cluster ------------------------------------------------------------------------------------------------


def _files(directory: Path) -> dict[str, bytes]:
    """The files of a directory by name, without temporary ones, whose names begin with a dot."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(directory).as_posix(): read_file(path) for path in files}


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make a directory hold exactly these files."""
    for path in [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")]:
        if path.relative_to(directory).as_posix() not in files:
            path.unlink()
    # result.json means that a run has ended, so it is written last.
    for name, content in sorted(files.items(), key=lambda item: item[0] == "result.json"):
        place = directory / name
        make_directories(place.parent)
        write_atomically(place, content)


def _run_far(
    function: Callable[..., Any], arguments: tuple[Any, ...], files: Mapping[str, bytes] | None
) -> tuple[Any, int, dict[str, bytes] | None]:
    """Run one job on a machine of the cluster, and return its result, its progress and its files."""
    counted: list[int] = []
    _report_to(counted.append)
    if files is None:
        return function(*arguments), sum(counted), None
    with tempfile.TemporaryDirectory(prefix="fedgauge-") as place:
        directory = Path(place, "job")
        if files:
            _write(directory, files)
        return function(*arguments, str(directory)), sum(counted), _files(directory)


class ClusterPool:
    """A pool that runs jobs as tasks of a cluster, one per core; a lost job is run again."""

    def __init__(self, compute: Compute, report: Report = lambda steps: None) -> None:
        self._compute, self._report, self._done = compute, report, 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Imported here, so that reading results need not wait for torch.
        from fedgauge.simulation.engines.cluster import join

        self._cluster = self._stack.enter_context(join(self._compute))
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)

    def map(
        self, function: Callable[..., Any], jobs: Jobs[Key], directories: Mapping[Key, Path] | None = None
    ) -> Iterator[tuple[Key, Any]]:
        """Submit the jobs in order; only about as many at once as the cluster has room for."""
        waiting = iter(jobs.items())
        pending: dict[Any, Key] = {}
        while True:
            # Machines may join and leave. Some jobs always wait, so that a free core gets one at once.
            room = (self._compute.processes or 2 * self._cluster.cpus) - len(pending)
            for _, (key, job) in zip(range(room), waiting, strict=False):
                files = _files(directories[key]) if directories else None
                pending[self._cluster.submit(_run_far, function, job, files)] = key
            if not pending:
                return
            task = self._cluster.first(list(pending))
            result, steps, files = self._cluster.result(task)
            key = pending.pop(task)
            if directories and files is not None:
                _write(directories[key], files)
            self._done += steps
            self._report(self._done)
            yield key, result
