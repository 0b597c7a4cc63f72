"""What saved models say about a round, with data and without: the global one, the clients', and the next global one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedgauge.base.errors import InputError, positive
from fedgauge.base.threads import undisturbed
from fedgauge.federation.protocols import Rows, carries_statistics
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.runs.checkpoints import Given, read_tensors
from fedgauge.values.display import short
from fedgauge_inspection.inspected_gradients import compare_gradients
from fedgauge_inspection.inspection_result import InspectedClient, InspectedLayer, Inspection, outliers

Model = Given | npt.NDArray[Any]
"""What is taken for a model."""
_Named = Mapping[str, torch.Tensor]
_PREFIXES = ("module.", "_orig_mod.")
_STATISTICS = ("running_mean", "running_var")
_COUNTER = "num_batches_tracked"
_ROUNDING = 0.05
"""The part of the median change that rounding may be before it is mentioned."""


@undisturbed
def inspect_models(
    model: Model,
    clients: Sequence[Model],
    next: Model | None = None,
    sizes: Sequence[float] | None = None,
    federation: Rows | None = None,
) -> Inspection:
    """Compare the models of a round's clients with each other and with the global model.

    A model is a ``.safetensors`` file, a ``state_dict`` that ``torch.save`` wrote (only tensors are unpickled), the
    directory of a run, a module, a ``state_dict``, or a flat tensor. Prefixes that ``DistributedDataParallel`` and
    ``torch.compile`` put before every name are taken off. Numbers that are not floating-point ones, and BatchNorm's
    running statistics, are left out, and so said. All sums are made in float64.

    Args:
        model: the global model that the clients began with.
        clients: the clients' models after their local steps.
        next: the global model that the server made of them, for the effective step of the server.
        sizes: the clients' weights in the mean, such as their numbers of examples; equal by default.
        federation: the clients' data and their model, for gradients at these models and for zeta, L_h and L_tilde as
            they are there. Its workers are the clients, in their order. Without it, models alone are compared.

    >>> import torch
    >>> start, one, two = torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> inspection = inspect_models(start, [one, two], next=torch.tensor([0.25, 0.25]))
    >>> inspection.alignment, inspection.spread, inspection.server_step
    (0.5, 0.5, 0.5)
    """
    if isinstance(clients, str | Path | Mapping | nn.Module) or not isinstance(clients, Sequence) or not clients:
        raise InputError("clients must be a list of at least one model; name the clients' files after the global one.")
    named = {name: _named(each) for name, each in zip(_names(clients), clients, strict=True)}
    weights = _weights(sizes, len(named))
    start = _named(model)
    whole = {"the global model": start, **named} | ({} if next is None else {"the next model": _named(next)})
    files = dict(zip(whole, (model, *clients, next), strict=False))
    left_out = _compare_shapes(whole, files)
    names = [name for name in start if name not in left_out]
    if not names:
        raise InputError("The models have no floating-point numbers to compare; name files of model parameters.")
    sums = _Sums(len(named))
    layers = tuple(sums.add(name, weights, [each[name] for each in whole.values()]) for name in names)
    found = sums.result(list(named), weights, layers, next is not None, _sentences(left_out))
    return found if federation is None else _with_gradients(found, federation, start, named, weights)


def _with_gradients(
    found: Inspection, federation: Rows, start: _Named, clients: Mapping[str, _Named], weights: torch.Tensor
) -> Inspection:
    """What models say together with the clients' data."""
    measured, numbers = compare_gradients(federation, start, clients, weights)
    own = [
        replace(client, losses=each.losses, gradients=each.gradients, L_tilde=each.steepness)
        for client, each in zip(found.clients, numbers, strict=True)
    ]
    remarks = federation.remarks if isinstance(federation, SupervisedFederation) else ()
    if carries_statistics(federation):
        remarks = (*remarks, "In gradients, BatchNorm normalises by each client's own running statistics.")
    return replace(found, clients=tuple(own), notes=(*found.notes, *remarks), measured=measured)


class _Sums:
    """Sums over layers, which are read one at a time."""

    def __init__(self, number: int) -> None:
        self._gram = torch.zeros(number, number, dtype=torch.float64)
        self._apart2 = torch.zeros(number, dtype=torch.float64)
        self._mean2 = self._along = self._step2 = self._rounding2 = 0.0

    def add(self, name: str, weights: torch.Tensor, tensors: Sequence[torch.Tensor]) -> InspectedLayer:
        """Add a tensor of the global model, of the clients, and of the next model if there is one."""
        number = len(weights)
        start = tensors[0].detach().cpu().double().reshape(-1)
        models = torch.stack([each.detach().cpu().double().reshape(-1) for each in tensors[1 : number + 1]])
        changes = models - start
        # Relative to the first, so that equal models have exactly that model as their mean, and no spread.
        relative = models - models[0]
        centre = weights @ relative
        apart2, mean = (relative - centre).square().sum(1), changes[0] + centre
        self._gram += changes @ changes.T
        self._apart2 += apart2
        change2, mean2 = float(weights @ changes.square().sum(1)), float(mean @ mean)
        self._mean2 += mean2
        if len(tensors) > number + 1:
            step = tensors[-1].detach().cpu().double().reshape(-1) - start
            self._along += float(step @ mean)
            self._step2 += float(step @ step)
        alignment = mean2 / change2 if change2 else None
        coarsest = max(torch.finfo(each.dtype).eps for each in tensors)
        self._rounding2 += (coarsest / 2) ** 2 * float(start @ start)
        return InspectedLayer(name, len(start), float(weights @ apart2), change2, alignment, float(start.norm()))

    def result(
        self,
        names: Sequence[str],
        weights: torch.Tensor,
        layers: tuple[InspectedLayer, ...],
        has_next: bool,
        notes: tuple[str, ...],
    ) -> Inspection:
        """What the sums over all layers say."""
        gram, squares = self._gram, self._gram.diagonal()
        lengths, change2 = squares.sqrt(), float(weights @ squares)
        cosines = (gram / lengths.unsqueeze(1) / lengths).clamp(-1, 1)
        with_others = []
        for client in range(len(names)):
            others = weights.clone()
            others[client] = 0
            length2 = float(others @ gram @ others)
            whole = float(lengths[client]) * max(length2, 0.0) ** 0.5
            with_others.append(float(gram[client] @ others) / whole if whole > 0 else None)
        reasons = outliers(lengths.tolist(), with_others)
        columns = (names, weights.tolist(), lengths.tolist(), self._apart2.sqrt().tolist(), with_others, reasons)
        step, explained = None, None
        if has_next:
            step = self._along / self._mean2 if self._mean2 else 0.0
            explained = min(step * self._along / self._step2, 1.0) if self._step2 else None
        return Inspection(
            spread=float(weights @ self._apart2),
            change2=change2,
            alignment=min(self._mean2 / change2, 1.0) if change2 else None,
            unrelated=float(weights.square() @ squares) / change2 if change2 else None,
            cosines=tuple(tuple(None if value != value else value for value in row) for row in cosines.tolist()),
            clients=tuple(InspectedClient(*each) for each in zip(*columns, strict=True)),
            layers=layers,
            server_step=step,
            explained=explained,
            notes=(*notes, *self._rounded(lengths)),
        )

    def _rounded(self, lengths: torch.Tensor) -> list[str]:
        """What the rounding of the stored numbers may be, where changes are not much longer."""
        rounding, usual = self._rounding2**0.5, float(lengths.median())
        if rounding <= _ROUNDING * usual:
            return []
        return [
            f"Rounding in the models' number type may be as long as {short(rounding)}, where the median client's change"
            f" is {short(usual)} long; save the models in a type of more digits."
        ]


def _weights(sizes: Sequence[float] | None, number: int) -> torch.Tensor:
    if sizes is None:
        return torch.full((number,), 1 / number, dtype=torch.float64)
    if len(sizes) != number:
        raise InputError(f"sizes must have one number for each of {number} clients, not {len(sizes)}.")
    weights = torch.tensor([positive("sizes", each) for each in sizes], dtype=torch.float64)
    return weights / weights.sum()


def _names(clients: Sequence[Model]) -> list[str]:
    """A name for each client: its file, if that tells it from the others."""
    if all(isinstance(each, str | Path) for each in clients):
        paths = [Path(str(each)) for each in clients]
        for names in ([path.name for path in paths], [str(path) for path in paths]):
            if len(set(names)) == len(names):
                return names
    return [str(number) for number in range(len(clients))]


def _named(model: Any) -> dict[str, torch.Tensor]:
    """The tensors of a model by name."""
    where = str(model) if isinstance(model, str | Path) else "A model"
    if isinstance(model, str | Path):
        path = Path(model)
        if path.is_dir():
            named = path / "state_dict.safetensors"
            path = named if named.exists() else path / "model.safetensors"
        tensors: Mapping[str, torch.Tensor] = read_tensors(path)
    elif isinstance(model, nn.Module):
        tensors = model.state_dict()
    elif isinstance(model, Mapping) and all(isinstance(each, torch.Tensor) for each in model.values()):
        tensors = model
    elif isinstance(model, np.ndarray) and model.dtype.kind == "f":
        tensors = {"model": torch.from_numpy(model)}
    elif isinstance(model, torch.Tensor):
        tensors = {"model": model}
    else:
        raise InputError(
            f"A model must be the name of a file or run, a module, its state_dict or a flat tensor, not of type"
            f" {type(model).__name__}."
        )
    if not tensors:
        raise InputError(f"{where} holds no tensors; save module.state_dict().")
    named_parts = dict(tensors)
    while prefix := next_prefix(named_parts):
        named_parts = {name.removeprefix(prefix): each for name, each in named_parts.items()}
    return named_parts


def next_prefix(names: Mapping[str, Any]) -> str:
    """What a wrapper has put before every name; empty if there is nothing.

    >>> next_prefix({"module.weight": 0, "module.bias": 0}), next_prefix({"module.weight": 0, "bias": 0})
    ('module.', '')
    """
    return next((each for each in _PREFIXES if all(name.startswith(each) for name in names)), "")


def _compare_shapes(models: Mapping[str, Mapping[str, torch.Tensor]], given: Mapping[str, Any]) -> dict[str, str]:
    """Refuse models that are not of one architecture, or not finite; what is left out, with the reason."""

    def who(name: str) -> str:
        source = given[name]
        if isinstance(source, str | Path):
            return str(source)
        return name if name.startswith("the ") else f"client {name}"

    (first, start), *others = models.items()
    for name, model in others:
        missing, extra = [each for each in start if each not in model], [each for each in model if each not in start]
        if missing or extra:
            has, lacks = (who(name), who(first)) if extra else (who(first), who(name))
            raise InputError(
                f"{has} has {(extra or missing)[0]}, which {lacks} does not have; name models of one architecture."
            )
        for part, tensor in start.items():
            if model[part].shape != tensor.shape:
                raise InputError(
                    f"{part} has the shape {tuple(model[part].shape)} in {who(name)}, but {tuple(tensor.shape)} in"
                    f" {who(first)}; name models of one architecture."
                )
    left_out = {name: reason for name, tensor in start.items() if (reason := _reason(name, tensor, start))}
    for name, model in models.items():
        for part, tensor in model.items():
            if part not in left_out and not bool(torch.isfinite(tensor).all()):
                raise InputError(
                    f"{who(name)} has a number in {part} that is not finite; leave that model out, as its training has"
                    " diverged."
                )
    return left_out


def _reason(name: str, tensor: torch.Tensor, model: Mapping[str, torch.Tensor]) -> str:
    if not tensor.is_floating_point():
        return "not floating-point numbers"
    place, _, last = name.rpartition(".")
    if last in _STATISTICS and f"{place}.{_COUNTER}".lstrip(".") in model:
        return "BatchNorm's running statistics"
    return ""


def _sentences(left_out: Mapping[str, str]) -> tuple[str, ...]:
    """What was left out, one sentence for each reason."""
    sentences = []
    for reason, number in Counter(left_out.values()).items():
        first = next(name for name, why in left_out.items() if why == reason)
        more = f" and {number - 1} more" if number > 1 else ""
        sentences.append(f"Left out, as they are {reason}: {first}{more}.")
    return tuple(sentences)
