"""Clusters: what a distribution that brings one offers, and the engine that computes lanes on it.

Another kind of cluster is one more distribution: its entry point in the group ``fedgauge.engines``, whose name is what
``--engine`` takes, is a function of an address and a number of tasks at once, either of which may be None, and returns
a context that joins or starts a :class:`Cluster` and leaves it at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, Self

from fedgauge.base.errors import InputError
from fedgauge.base.user_code import ENGINES, plugins
from fedgauge.simulation.engines.local import Method
from fedgauge.simulation.options import PUBLISHED, Compute
from fedgauge.simulation.workers import LaneWork


class Cluster(Protocol):
    """Runs functions of modules as tasks, with one thread each; a lost task is run again on any machine."""

    @property
    def cpus(self) -> int:
        """The number of tasks that can currently run at once."""

    def place(self, value: Any) -> Any:
        """Put a value where every machine can read it; return what names it there."""

    def submit(self, function: Callable[..., Any], *arguments: Any, placed: Any = None, shared: Any = None) -> Any:
        """Start a task.

        Args:
            function: function to call; the values of ``placed`` and ``shared``, if any, are its first arguments.
            *arguments: further arguments of the function.
            placed: what :meth:`place` returned for a value that a process keeps for its next task.
            shared: what :meth:`place` returned for a value that a process does not keep.
        """

    def first(self, pending: Sequence[Any]) -> Any:
        """Wait for whichever of the tasks ends first."""

    def result(self, task: Any) -> Any:
        """Return the result of a task; an error that the task raised is raised here."""


def join(compute: Compute) -> AbstractContextManager[Cluster]:
    """Join or start the cluster that these options name; refuse one whose distribution is not installed."""
    name, joins = str(compute.engine), plugins(ENGINES)
    if name not in joins:
        needed = PUBLISHED[name]
        raise InputError(f"engine = {name} needs {needed}, which is not installed; run: pip install {needed}.")
    joined: AbstractContextManager[Cluster] = joins[name](compute.address, compute.processes)
    return joined


def _lanes(work: LaneWork, arguments: tuple[Any, ...], method: Method, lanes: Sequence[Any]) -> list[Any]:
    return [method(work, lane, *arguments) for lane in lanes]


class OnCluster:
    """Tasks on a cluster, which compute the work; it is sent once, and a process keeps it for its next task.

    Args:
        work: what the tasks run.
        compute: which cluster, and the largest number of tasks at once; by default, one per core of the cluster.
    """

    def __init__(self, work: LaneWork, compute: Compute) -> None:
        device = work.federation.start(0).device.type
        if device != "cpu":
            raise InputError(
                f"engine = {compute.engine} computes on the CPU, not on {device}; leave out either device or engine."
            )
        with ExitStack() as stack:
            self._cluster = stack.enter_context(join(compute))
            self._number = compute.processes or self._cluster.cpus
            self._work = self._cluster.place(work)
            # If the work cannot be sent, the cluster is left here; otherwise, at the end of the run.
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        del self._work
        self._stack.__exit__(*failure)

    @property
    def width(self) -> int:
        """How many lanes are computed at once."""
        return self._number

    def map(self, method: Method, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
        """Deal the lanes to tasks and put their answers back in order; a lost task is run again."""
        shared = self._cluster.place(arguments)
        number = min(self._number, len(lanes))
        tasks = [
            self._cluster.submit(_lanes, method, list(lanes[index::number]), placed=self._work, shared=shared)
            for index in range(number)
        ]
        results: list[Any] = [None] * len(lanes)
        for index in range(number):
            results[index::number] = self._cluster.result(tasks[index])
        return results
