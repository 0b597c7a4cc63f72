"""What the workers of a job say together about a round: sums over ranks, by named parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from fedgauge.base.errors import InputError
from fedgauge.measurement.live.passes import BatchLoss, Slope, Tensors, examples_in, slope
from fedgauge.measurement.live.probe_result import ProbedLayer, ProbedRound
from fedgauge.measurement.live.reducing import Reduce
from fedgauge.values import Round

_TOGETHER = 2**22
"""The number of parameters whose vectors are summed over ranks at once."""
_CHECKS = 2
"""The number of random directions in which a mean is told from another model."""
_COARSE = 1e-5
"""Averages in types that round more coarsely than this are not the mean, which is then computed."""


@dataclass
class Worker:
    """One worker at the end of its local steps.

    Attributes:
        module: its module.
        batches: its fixed batches.
        weight: its weight in the average.
        parameters: its trained parameters.
        buffers: its buffers, which count in every pass of the round.
        local: its gradient there.
    """

    module: nn.Module
    batches: Sequence[Any]
    weight: float
    parameters: Tensors
    buffers: Tensors
    local: Slope


class Sent(NamedTuple):
    """The model before the round, and the model after it."""

    before: Tensors
    after: Tensors


@dataclass
class Compared:
    """A round as all workers have measured it together.

    Attributes:
        found: the round, without the largest ratios.
        steepest: the largest ratio of this rank's workers: of the whole model, then of each layer.
        stepped: whether the model after the round is not the mean of the local models.
    """

    found: ProbedRound
    steepest: torch.Tensor
    stepped: bool

    def with_steepest(self, most: torch.Tensor) -> ProbedRound | None:
        """The round with the largest ratios of all ranks; None if a number is not finite."""
        whole, *parts = (float(each) or None for each in most)
        layers = {
            name: replace(layer, L_tilde_ratio=part)
            for (name, layer), part in zip(self.found.layers.items(), parts, strict=True)
        }
        record = replace(self.found.record, L_tilde_ratio=whole)
        numbers = (record.loss, record.grad2, record.spread, record.deviation2, record.zeta2, whole)
        if not all(each is None or math.isfinite(each) for each in numbers):
            return None
        return replace(self.found, record=record, layers=layers)


def compare_workers(round: int, workers: Sequence[Worker], sent: Sent, loss: BatchLoss, reduce: Reduce) -> Compared:
    """Compare the workers' gradients at their local models, at the mean of these, and at the model before the round.

    Args:
        round: the number of the round.
        workers: those of this rank.
        sent: the models before and after the round.
        loss: the loss of a batch.
        reduce: the sum over ranks.
    """
    names = list(sent.before)
    if sent.after.keys() != sent.before.keys():
        raise InputError("The averaged model trains other parameters than the model before the round.")
    device = next(iter(workers[0].parameters.values())).device
    start = {name: each.to(device) for name, each in sent.before.items()}
    mean = {name: each.to(device).double() for name, each in sent.after.items()}
    distances = _distances(workers, start, mean, reduce)
    stepped = not distances.is_mean(sent.after)
    if stepped:
        mean = _mean(workers, mean, distances.weight, reduce)
        distances = _distances(workers, start, mean, reduce)
    at_mean = {name: each.to(start[name].dtype) for name, each in mean.items()}
    slopes = [slope(each.module, loss, each.batches, at_mean, each.buffers) for each in workers]
    first = [slope(each.module, loss, each.batches, start, each.buffers) for each in workers]
    W = distances.weight
    at_start, gap, common = _vectors(workers, first, slopes, W, names, reduce)
    table = torch.zeros(len(names) + 1, 2, dtype=torch.float64)
    for worker, begin, own in zip(workers, first, slopes, strict=True):
        spare = len(worker.batches) - 1
        for row, name in enumerate(names):
            table[row, 0] += worker.weight * float((own.gradient[name] - common[name]).square().sum())
            table[row, 1] += worker.weight * own.squares[name] / spare if spare else 0.0
        table[-1] += torch.tensor([worker.weight * begin.loss, worker.weight if spare else 0.0], dtype=torch.float64)
    table = reduce(table.to(device)).cpu()
    rows, noisy = {name: table[row].tolist() for row, name in enumerate(names)}, float(table[-1, 1])

    def layer(name: str) -> ProbedLayer:
        spread, moved2 = distances.spread[name] / W, distances.moved2[name] / W
        deviation2 = _square(gap[name])
        return ProbedLayer(
            spread=spread,
            alignment=_square(mean[name] - start[name].double()) / moved2 if moved2 else None,
            deviation2=deviation2,
            zeta2=rows[name][0] / W,
            sigma2=rows[name][1] / noisy if noisy else None,
            L_h_ratio=(deviation2 / whole_spread) ** 0.5 if whole_spread else None,
            L_tilde_ratio=None,
        )

    whole_spread = sum(distances.spread.values()) / W
    layers = {name: layer(name) for name in names}
    went2 = sum(_square(mean[name] - start[name].double()) for name in names)
    turned2 = sum(_square(common[name] - at_start[name]) for name in names)
    record = Round(
        round,
        float(table[-1, 0]) / W,
        sum(map(_square, at_start.values())),
        spread=whole_spread,
        deviation2=sum(each.deviation2 for each in layers.values()),
        zeta2=sum(each.zeta2 for each in layers.values()),
        L_g_ratio=(turned2 / went2) ** 0.5 if went2 else None,
        sample=distances.examples,
    )
    sigma2 = [each.sigma2 for each in layers.values() if each.sigma2 is not None]
    found = ProbedRound(
        record,
        distances.number,
        alignment=went2 / moved2 if (moved2 := sum(distances.moved2.values()) / W) else None,
        sigma2=sum(sigma2) if sigma2 else None,
        layers=layers,
    )
    return Compared(found, _steepest(workers, slopes, mean, device), stepped)


def _square(tensor: torch.Tensor) -> float:
    return float(tensor.square().sum())


class _Distances(NamedTuple):
    """Sums over all workers, by parameter: how far their models are from a centre, and from the model before."""

    number: int
    weight: float
    examples: int
    spread: Mapping[str, float]
    moved2: Mapping[str, float]
    checks: Sequence[float]

    def is_mean(self, centre: Tensors) -> bool:
        """Whether the centre is the mean of the models, up to its rounding."""
        rounding = max(torch.finfo(each.dtype).eps for each in centre.values())
        size = math.sqrt(sum(_square(each.double()) for each in centre.values()))
        error = max(abs(each) for each in self.checks) / self.weight
        return rounding < _COARSE and error <= 8 * rounding * size + 1e-9 * math.sqrt(sum(self.spread.values()))


def _distances(workers: Sequence[Worker], start: Tensors, centre: Tensors, reduce: Reduce) -> _Distances:
    """Sum up the distances, and the models' coordinates from the centre in a few directions, which a mean has as 0."""
    device = next(iter(start.values())).device
    table = torch.zeros(len(start), 2 + _CHECKS, dtype=torch.float64)
    signs = torch.Generator(device).manual_seed(0)
    for row, (name, begin) in enumerate(start.items()):
        directions = torch.randint(0, 2, (_CHECKS, begin.numel()), generator=signs, device=device, dtype=torch.int8)
        for worker in workers:
            x = worker.parameters[name].double()
            apart, moved = (x - centre[name]).reshape(-1), x - begin.double()
            table[row, 0] += worker.weight * _square(apart)
            table[row, 1] += worker.weight * _square(moved)
            for check in range(_CHECKS):
                signed = torch.where(directions[check].bool(), apart, -apart)
                table[row, 2 + check] += worker.weight * float(signed.sum())
    count = torch.zeros(1, 2 + _CHECKS, dtype=torch.float64)
    count[0, 0], count[0, 1] = len(workers), sum(each.weight for each in workers)
    count[0, 2] = sum(examples_in(batch) for each in workers for batch in each.batches)
    table = reduce(torch.cat([table, count]).to(device)).cpu()
    spread, moved2 = (dict(zip(start, table[:-1, column].tolist(), strict=True)) for column in (0, 1))
    number, weight, examples = table[-1, :3].tolist()
    return _Distances(round(number), weight, round(examples), spread, moved2, table[:-1, 2:].sum(0).tolist())


def _mean(workers: Sequence[Worker], near: Tensors, weight: float, reduce: Reduce) -> dict[str, torch.Tensor]:
    """The mean of the local models, from their distances to a model that is near them."""
    found = {}
    for names in _groups(near):
        parts = [
            torch.cat([((each.parameters[n].double() - near[n]) * each.weight).reshape(-1) for n in names])
            for each in workers
        ]
        total = reduce(sum(parts[1:], start=parts[0])) / weight
        for name, part in zip(names, _parts(total, near, names), strict=True):
            found[name] = near[name] + part.view_as(near[name])
    return found


def _vectors(
    workers: Sequence[Worker],
    first: Sequence[Slope],
    slopes: Sequence[Slope],
    weight: float,
    names: Sequence[str],
    reduce: Reduce,
) -> list[dict[str, torch.Tensor]]:
    """The mean gradient before the round, its deviation at the mean model, and the mean gradient there."""
    found: list[dict[str, torch.Tensor]] = [{}, {}, {}]
    shapes = {name: first[0].gradient[name] for name in names}
    for group in _groups(shapes):
        sums: torch.Tensor | None = None
        for worker, begin, own in zip(workers, first, slopes, strict=True):
            each = torch.stack(
                [
                    torch.cat([begin.gradient[name].reshape(-1) for name in group]),
                    torch.cat([(worker.local.gradient[n] - own.gradient[n]).reshape(-1) for n in group]),
                    torch.cat([own.gradient[name].reshape(-1) for name in group]),
                ]
            )
            sums = each * worker.weight if sums is None else sums.add_(each, alpha=worker.weight)
        assert sums is not None
        means = reduce(sums) / weight
        for vector, into in zip(means, found, strict=True):
            for name, part in zip(group, _parts(vector, shapes, group), strict=True):
                into[name] = part.view_as(shapes[name])
    return found


def _parts(vector: torch.Tensor, shapes: Tensors, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """A vector in pieces, one for each of these tensors."""
    return torch.split_with_sizes(vector, [shapes[name].numel() for name in names])


def _groups(tensors: Tensors) -> Iterator[list[str]]:
    """The names in groups that are summed over ranks together, so that no more than that is in memory twice."""
    group: list[str] = []
    size = 0
    for name, each in tensors.items():
        if group and size + each.numel() > _TOGETHER:
            yield group
            group, size = [], 0
        group.append(name)
        size += each.numel()
    yield group


def _steepest(workers: Sequence[Worker], slopes: Sequence[Slope], mean: Tensors, device: torch.device) -> torch.Tensor:
    """The largest change of a worker's gradient over the distance of its models: of all parameters, and of each."""
    most = torch.zeros(1 + len(mean), dtype=torch.float64)
    for worker, own in zip(workers, slopes, strict=True):
        distance2 = sum(_square(worker.parameters[name].double() - each) for name, each in mean.items())
        changes = [_square(worker.local.gradient[name] - own.gradient[name]) for name in mean]
        if distance2 > 0:
            ratios = torch.tensor([sum(changes), *changes], dtype=torch.float64).div(distance2).sqrt()
            most = torch.maximum(most, ratios)
    return most.to(device)
