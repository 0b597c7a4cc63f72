"""A live gauge in a job of several processes that talk by torch.distributed: one decides, and all follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedgauge.algorithms.live.gauge import LiveGauge
from fedgauge.measurement.live.replicas import Replicas, rescale_momentum, set_steps
from fedgauge.values.answer import Answer

if TYPE_CHECKING:
    import torch


@runtime_checkable
class LocalSGD(Protocol):
    """What is used of :class:`accelerate.local_sgd.LocalSGD`."""

    local_sgd_steps: int
    num_steps: int


class Exchange(Protocol):
    """How the processes of a job talk to each other."""

    def average(self, loss: float | None) -> float | None:
        """The mean loss of the processes, or None if there is none."""

    def agree(self, steps: int) -> int | None:
        """The number of the process that decides, or None if it did not arrive."""

    def averaged(self) -> bool:
        """Whether the models of the round that has just ended were averaged."""


class Group:
    """Processes that talk through a process group of torch.distributed; all processes by default."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def average(self, loss: float | None) -> float | None:
        """The sum over all processes, divided by their number."""
        import torch
        import torch.distributed as dist

        if loss is None:
            return None
        total = torch.tensor([float(loss)], dtype=torch.float64)
        dist.all_reduce(total, group=self._group)
        return float(total) / dist.get_world_size(self._group)

    def agree(self, steps: int) -> int:
        """Process 0 decides."""
        import torch
        import torch.distributed as dist

        decision = torch.tensor([steps], dtype=torch.int64)
        source = 0 if self._group is None else dist.get_global_rank(self._group, 0)
        dist.broadcast(decision, src=source, group=self._group)
        return int(decision)

    def averaged(self) -> bool:
        """Whoever averages with torch.distributed succeeds, or the job ends."""
        return True


class DistributedGauge:
    """A :class:`LiveGauge` that every process of a job can ask, and that gives all of them the same number.

    The loss is averaged over the processes, process 0 decides, and its decision is sent to the others. Processes cannot
    disagree, even where their evaluations differ in the last bit.

    Args:
        live: the gauge, made with the same arguments in every process.
        group: the process group; all processes by default. With torchft it is the ``Manager``: the first replica that
            takes part decides, and one that joins later gets the gauge's state from the others. If a replica has
            several processes, all of them must pass the same losses.
    """

    def __init__(self, live: LiveGauge, group: Any = None) -> None:
        self._live, self._group = live, group
        self._agreed = self._before = live.local_steps
        # Steps of rounds that were not averaged belong to the next round that is, unless the averager undoes them.
        self._extra, self._discards = 0, False
        self._exchange: Exchange = Group(group)
        if hasattr(group, "start_quorum"):
            self._exchange = Replicas(group)
            group.register_state_dict_fn("fedgauge", self.load_state_dict, self.state_dict)

    @property
    def local_steps(self) -> int:
        """The local steps of the next round, the same in every process."""
        return self._agreed

    def record(self, loss: float | None = None, taken: int | None = None) -> None:
        """Note that a round has ended; every process must call it, and all with a loss or none.

        With torchft, call it after every round. If the models were not averaged, the next round has as many steps, and
        its loss is left out unless the averager went back to the last average.

        Args:
            loss: of this process's part of the held-out examples, at the averaged model; None if it was not evaluated.
            taken: as for :meth:`LiveGauge.record`.
        """
        averaged, steps = self._exchange.averaged(), self._agreed if taken is None else taken
        shared = self._exchange.average(loss if averaged else None)
        if averaged:
            # A loss says nothing after more steps than were asked for, or if a decision did not arrive.
            usual = not self._extra and self._live.local_steps == self._agreed
            self._live.record(shared if usual else None, steps + self._extra if self._extra else steps)
            self._extra = 0
        elif not self._discards:
            self._extra += steps
        self._agreed = self._exchange.agree(self._live.local_steps) or self._agreed

    def average(self, parameters: Iterable[torch.Tensor]) -> None:
        """Average parameters over the processes, in place."""
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            for parameter in parameters:
                dist.all_reduce(parameter, group=self._group)
                parameter /= dist.get_world_size(self._group)

    def pace(self, averager: Any, *, rescale: bool = False) -> None:
        """Let an averager average next after the steps of the next round.

        Args:
            averager: PyTorch's ``PeriodicModelAverager``, accelerate's ``LocalSGD``, or torchft's ``LocalSGD`` or
                ``DiLoCo``; it must just have averaged, or not have begun.
            rescale: whether to multiply the outer momentum of ``DiLoCo`` by the new number of local steps over the old
                one, for experiments: with an outer momentum, answers cannot be relied on, rescaled or not.
        """
        if hasattr(averager, "_sync_every"):
            fragments = set_steps(averager, self._agreed, (*self._live.candidates, self._live.settings["local_steps"]))
            self._discards = hasattr(averager, "_fragments")
            if isinstance(self._exchange, Replicas):
                self._exchange.fragments = fragments
            if rescale:
                rescale_momentum(averager, self._agreed / self._before)
        elif isinstance(averager, LocalSGD):
            # It averages where its steps are a multiple of this number.
            averager.num_steps, averager.local_sgd_steps = 0, self._agreed
        else:
            # It averages where the steps beyond its warm-up are a multiple of its period, and counts afterwards.
            averager.period = self._agreed
            averager.warmup_steps = averager.step + self._agreed - 1
        self._before = self._agreed

    def answer(self) -> Answer:
        """What the run has shown so far; that of process 0 is the one that counts."""
        return self._live.answer()

    def state_dict(self) -> dict[str, Any]:
        """As :meth:`LiveGauge.state_dict`, for process 0 to save."""
        return self._live.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As :meth:`LiveGauge.load_state_dict`, in every process."""
        self._live.load_state_dict(state)
        self._agreed = self._before = self._live.local_steps
        self._extra = 0
