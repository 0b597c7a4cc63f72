"""The engine on a Ray cluster: lanes are tasks, the federation is sent once, and only sums come back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from fedgauge.errors import InputError
from fedgauge.simulation.engines.local import LaneWork
from fedgauge.simulation.engines.ray_cluster import Cluster, join


def _lanes(work: LaneWork, arguments: tuple[Any, ...], method: str, lanes: Sequence[Any]) -> list[Any]:
    return [getattr(work, method)(lane, *arguments) for lane in lanes]


class OnRay:
    """Tasks on a Ray cluster, in processes with one thread each.

    Args:
        work: what the tasks run; it is sent once, and a process that runs a task keeps it for the next one.
        number: the largest number of tasks at once; by default, one per core of the cluster.
        address: address of the cluster; by default, one is started here, and stopped at the end.
    """

    def __init__(self, work: LaneWork, number: int | None, address: str | None) -> None:
        device = work.federation.start(0).device.type
        if device != "cpu":
            raise InputError(f"engine = ray computes on the CPU, not on {device}; leave out either device or engine.")
        with ExitStack() as stack:
            self._cluster: Cluster = stack.enter_context(join(address, number))
            self._number = number or self._cluster.cpus
            self._work = self._cluster.place(work)
            # If the work cannot be sent, the cluster is left here; otherwise, at the end of the run.
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        del self._work
        self._stack.__exit__(*failure)

    def map(self, method: str, lanes: Sequence[Any], *arguments: Any) -> list[Any]:
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
