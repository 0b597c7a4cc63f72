"""An algorithm for models that carry statistics: the last columns of a flat model, which no optimiser touches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedgauge.algorithms.base import Algorithm, Tensors

if TYPE_CHECKING:
    import torch

_SENT = "statistics"
_SHARE = "statistics.share"
"""In a message, the statistics, and the sum of the participants' weights."""


@dataclass(frozen=True)
class _CarryingStep:
    """The algorithm's step on the parameters; statistics move by what the forward pass made of them."""

    algorithm: Algorithm
    trained: int

    def __call__(self, local: Tensors, gradient: torch.Tensor) -> Tensors:
        import torch

        moved = self.algorithm.step(_parameters(local, self.trained), gradient[:, : self.trained])
        statistics = local["x"][:, self.trained :] - gradient[:, self.trained :]
        return {**moved, "x": torch.cat([moved["x"], statistics], dim=1)}

    def fused_rate(self, server: Tensors) -> float | None:
        """gamma, where the algorithm's own steps are plain SGD."""
        return self.algorithm.fused_rate(server)


def _parameters(local: Tensors, trained: int) -> Tensors:
    return {**local, "x": local["x"][..., :trained]}


def carry_statistics(algorithm: Algorithm, trained: int) -> Algorithm:
    """Let an algorithm train the first columns of a flat model, and average the others over the participants.

    Whatever the algorithm does with changes (eta, momentum, control variates), the statistics of the new global model
    are the weighted mean of those with which the participants ended.

    Args:
        algorithm: what trains the parameters.
        trained: the number of parameters.
    """

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        import torch

        local = algorithm.begin(model[:trained], server, memory)
        x = local["x"]
        statistics = model[trained:].expand(*x.shape[:-1], -1)
        return {**local, "x": torch.cat([x, statistics], dim=-1)}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        sent, remembered = algorithm.finish(model[:trained], _parameters(local, trained), steps)
        share = steps.new_ones(steps.shape)
        return {**sent, _SENT: local["x"][:, trained:], _SHARE: share}, remembered

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        import torch

        sent = {name: value for name, value in mean.items() if name not in (_SENT, _SHARE)}
        moved, after = algorithm.update(model[:trained], server, sent, fraction)
        # The weights of sampled workers add up to one only in expectation; without that, a variance could be anything.
        return torch.cat([moved, mean[_SENT] / mean[_SHARE]]), after

    return replace(
        algorithm,
        init=lambda model: algorithm.init(model[:trained]),
        worker_init=lambda model: algorithm.worker_init(model[:trained]),
        begin=begin,
        step=_CarryingStep(algorithm, trained),
        finish=finish,
        update=update,
    )
