"""A live gauge in a job of torchft, whose replicas may fail and join: what its manager and its averagers need."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fedgauge.base.errors import InputError


class Replicas:
    """Replicas that talk through torchft's manager.

    A round may not have been averaged, and a message may not arrive. Both exchanges of a round follow its quorum, so
    that the same replicas take part.
    """

    def __init__(self, manager: Any) -> None:
        self._manager, self._step = manager, manager.current_step()
        self.fragments = 1

    def averaged(self) -> bool:
        """Whether the manager has committed every fragment of the model since this was last asked."""
        before, self._step = self._step, self._manager.current_step()
        return bool(self._step - before >= self.fragments)

    def average(self, loss: float | None) -> float | None:
        """The mean of the losses of those replicas that have one."""
        return self._mean(loss)

    def agree(self, steps: int) -> int | None:
        """The first replica that takes part decides."""
        decision = self._mean(steps if self._manager.participating_rank() == 0 else None)
        return None if decision is None else round(decision)

    def _mean(self, value: float | None) -> float | None:
        import torch

        # The manager may divide both by the same number.
        pair = torch.tensor([0.0 if value is None else value, float(value is not None)], dtype=torch.float64)
        self._manager.allreduce(pair).wait()
        if self._manager.errored() is not None or pair[1] <= 0:
            return None
        return float(pair[0] / pair[1])


def set_steps(averager: Any, steps: int, possible: Collection[int]) -> int:
    """Set the local steps of torchft's LocalSGD or DiLoCo, and say in how many fragments it averages the model."""
    fragments = len(getattr(averager, "_fragments", ())) or 1
    delay = getattr(averager, "_fragment_sync_delay", 0)
    for each in sorted({*possible, steps}):
        if each % fragments or each // fragments <= delay:
            raise InputError(
                f"A model in {fragments} fragments with a delay of {delay} steps cannot have {each} local steps; make"
                f" the LiveGauge with local_steps and candidates that are multiples of {fragments} and larger than"
                f" {fragments * delay}."
            )
    averager._sync_every = steps // fragments  # it averages one fragment at a time
    return fragments


def rescale_momentum(averager: Any, factor: float) -> None:
    """Multiply the momentum of DiLoCo's outer optimisers by a factor."""
    import torch

    optimisers = {id(each._outer_optimizer): each._outer_optimizer for each in getattr(averager, "_fragments", ())}
    for optimiser in optimisers.values():
        if not isinstance(optimiser, torch.optim.SGD):
            raise InputError(f"rescale is for an outer SGD with momentum, not for {type(optimiser).__name__}.")
        for state in optimiser.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].mul_(factor)
