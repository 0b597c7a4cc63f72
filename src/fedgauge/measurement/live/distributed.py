"""A live gauge in a job of several processes that talk by torch.distributed: one decides, and all follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedgauge.measurement.live.gauge import LiveGauge
from fedgauge.values.answer import Answer

if TYPE_CHECKING:
    import torch


@runtime_checkable
class LocalSGD(Protocol):
    """What is used of :class:`accelerate.local_sgd.LocalSGD`."""

    local_sgd_steps: int
    num_steps: int


class DistributedGauge:
    """A :class:`LiveGauge` that every process of a job can ask, and that gives all of them the same number.

    The loss is averaged over the processes, process 0 decides, and its decision is sent to the others. Processes cannot
    disagree, even where their evaluations differ in the last bit.

    Args:
        live: the gauge, made with the same arguments in every process.
        group: the process group; all processes by default.
    """

    def __init__(self, live: LiveGauge, group: Any = None) -> None:
        self._live, self._group = live, group
        self._agreed = live.local_steps

    @property
    def local_steps(self) -> int:
        """The local steps of the next round, the same in every process."""
        return self._agreed

    def record(self, loss: float | None = None, taken: int | None = None) -> None:
        """Note that a round has ended; every process must call it, and all with a loss or none.

        Args:
            loss: of this process's part of the held-out examples, at the averaged model; None if it was not evaluated.
            taken: as for :meth:`LiveGauge.record`.
        """
        import torch
        import torch.distributed as dist

        shared = None
        if loss is not None:
            total = torch.tensor([float(loss)], dtype=torch.float64)
            dist.all_reduce(total, group=self._group)
            shared = float(total) / dist.get_world_size(self._group)
        self._live.record(shared, taken)
        decision = torch.tensor([self._live.local_steps], dtype=torch.int64)
        dist.broadcast(
            decision, src=0 if self._group is None else dist.get_global_rank(self._group, 0), group=self._group
        )
        self._agreed = int(decision)

    def average(self, parameters: Iterable[torch.Tensor]) -> None:
        """Average parameters over the processes, in place."""
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            for parameter in parameters:
                dist.all_reduce(parameter, group=self._group)
                parameter /= dist.get_world_size(self._group)

    def pace(self, averager: Any) -> None:
        """Let PyTorch's periodic averager, or accelerate's LocalSGD, average next after the steps of the next round."""
        if isinstance(averager, LocalSGD):
            # It averages where its steps are a multiple of this number.
            averager.num_steps, averager.local_sgd_steps = 0, self._agreed
        else:
            # It averages where the steps beyond its warm-up are a multiple of its period, and counts afterwards.
            averager.period = self._agreed
            averager.warmup_steps = averager.step + self._agreed - 1

    def answer(self) -> Answer:
        """What the run has shown so far; that of process 0 is the one that counts."""
        return self._live.answer()

    def state_dict(self) -> dict[str, Any]:
        """As :meth:`LiveGauge.state_dict`, for process 0 to save."""
        return self._live.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As :meth:`LiveGauge.load_state_dict`, in every process."""
        self._live.load_state_dict(state)
        self._agreed = self._live.local_steps
