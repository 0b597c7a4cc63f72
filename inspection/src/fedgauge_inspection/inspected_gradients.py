"""Gradients on the clients' own data, at the models that a round began and ended with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedgauge.base.errors import InputError
from fedgauge.federation.protocols import HasModule, HasStatistics, Rows
from fedgauge.measurement.live.probe_result import ProbedLayer, ProbedRound
from fedgauge.simulation.runs.checkpoints import from_parts
from fedgauge.values import Round
from fedgauge.values.display import counted


class ClientGradients(NamedTuple):
    """One client, on its own data.

    Attributes:
        losses: at the global model and at its own.
        gradients: the lengths of the gradients there.
        steepness: the change of its gradient between its own model and the mean of the clients' models, over the
            distance of the two; None if they are the same.
    """

    losses: tuple[float, float]
    gradients: tuple[float, float]
    steepness: float | None


def compare_gradients(
    federation: Rows,
    start: Mapping[str, torch.Tensor],
    clients: Mapping[str, Mapping[str, torch.Tensor]],
    weights: torch.Tensor,
) -> tuple[ProbedRound, tuple[ClientGradients, ...]]:
    """Compare the clients' gradients at the global model, at their own models, and at the mean of these.

    Losses and gradients are those of all of a client's data, in eval mode. BatchNorm normalises by the client's own
    statistics in all three, so that its gradients differ by the parameters alone, as :class:`~fedgauge.Probe` has it.

    Args:
        federation: the clients' data and their model; its workers are the clients, in their order.
        start: the tensors of the global model.
        clients: those of the clients' models, by name.
        weights: the clients' weights in the mean.
    """
    if federation.num_workers != len(clients):
        raise InputError(
            f"The data are those of {counted(federation.num_workers, 'worker')}, but"
            f" {counted(len(clients), 'client model')} were given; give one for each worker, in the workers' order."
        )
    first = from_parts(start, federation, "The global model")
    rows = [from_parts(model, federation, f"The model of client {name}") for name, model in clients.items()]
    trained = federation.num_trained if isinstance(federation, HasStatistics) else federation.dim
    parameters = [row[:trained].double() for row in rows]
    sums = _Sums(first[:trained].double(), parameters, weights, _layers(federation, first))
    each = [sums.add(federation, client, row, trained) for client, row in enumerate(rows)]
    return sums.result(), tuple(each)


def _layers(federation: Rows, model: torch.Tensor) -> dict[str, int]:
    """The sizes of the named tensors in the order of a flat model."""
    if not isinstance(federation, HasModule):
        return {"model": len(model)}
    return {name: each.numel() for name, each in federation.unflatten(model).items()}


class _Sums:
    """Weighted sums over clients, which are taken one at a time."""

    def __init__(
        self, start: torch.Tensor, rows: Sequence[torch.Tensor], weights: torch.Tensor, layers: Mapping[str, int]
    ) -> None:
        self._start, self._rows, self._weights, self._layers = start, rows, weights.tolist(), layers
        # Relative to the first, so that equal models have exactly that model as their mean.
        self._mean = rows[0] + sum((p * (row - rows[0]) for p, row in zip(self._weights, rows, strict=True)), start * 0)
        zero = torch.zeros_like(start)
        self._loss, self._weight, self._steepest = 0.0, 0.0, 0.0
        self._at_start, self._gap, self._at_mean = zero.clone(), zero.clone(), zero.clone()
        self._squares, self._steepness = zero.clone(), dict.fromkeys(layers, 0.0)

    def _parts(self, vector: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        place = 0
        for name, size in self._layers.items():
            if place < len(vector):  # BatchNorm's statistics follow the parameters
                yield name, vector[place : place + size]
            place += size

    def add(self, federation: Rows, client: int, row: torch.Tensor, trained: int) -> ClientGradients:
        """Add a client: three passes over its data."""
        worker, alone, p = np.array([client]), np.ones(1), self._weights[client]

        def slope(parameters: torch.Tensor) -> tuple[float, torch.Tensor]:
            loss, gradient = federation.pooled(torch.cat([parameters.to(row), row[trained:]]), worker, alone)
            return float(loss), gradient[:trained]

        before, at_start = slope(self._start)
        after, at_own = slope(self._rows[client])
        _, at_mean = slope(self._mean)
        self._loss += p * before
        self._at_start += p * at_start
        self._gap += p * (at_own - at_mean)
        # Welford's update: sums of squared distances from the mean, without cancellation.
        self._weight += p
        apart = at_mean - self._at_mean
        self._at_mean += apart * (p / self._weight)
        self._squares += p * apart * (at_mean - self._at_mean)
        distance = float((self._rows[client] - self._mean).norm())
        if distance > 0:
            for name, part in self._parts(at_own - at_mean):
                self._steepness[name] = max(self._steepness[name], float(part.norm()) / distance)
        steepness = float((at_own - at_mean).norm()) / distance if distance > 0 else None
        self._steepest = max(self._steepest, steepness or 0.0)
        return ClientGradients((before, after), (float(at_start.norm()), float(at_own.norm())), steepness)

    def result(self) -> ProbedRound:
        """The round as a probe has it."""
        gap, went = self._gap, self._mean - self._start
        spread, moved2 = (
            sum((p * (row - centre).square() for p, row in zip(self._weights, self._rows, strict=True)), gap * 0)
            for centre in (self._mean, self._start)
        )
        whole = float(spread.sum())
        columns = [dict(self._parts(each)) for each in (spread, went, moved2, gap, self._squares)]
        layers = {}
        for name in columns[0]:
            apart, change, moved, off, disagreement = (column[name] for column in columns)
            moved_far, off2 = float(moved.sum()), float(off.square().sum())
            layers[name] = ProbedLayer(
                spread=float(apart.sum()),
                alignment=float(change.square().sum()) / moved_far if moved_far else None,
                deviation2=off2,
                zeta2=max(float(disagreement.sum()), 0.0),
                sigma2=None,
                L_h_ratio=(off2 / whole) ** 0.5 if whole else None,
                L_tilde_ratio=self._steepness[name] or None,
            )
        went2, moved_in_all = float(went.square().sum()), float(moved2.sum())
        record = Round(
            0,
            self._loss,
            float(self._at_start.square().sum()),
            spread=whole,
            deviation2=float(gap.square().sum()),
            zeta2=max(float(self._squares.sum()), 0.0),
            L_tilde_ratio=self._steepest or None,
            L_g_ratio=float((self._at_mean - self._at_start).norm()) / went2**0.5 if went2 else None,
        )
        return ProbedRound(record, len(self._rows), went2 / moved_in_all if moved_in_all else None, None, layers)
