"""A module as a function of one vector, its parameters in the order of ``named_parameters``; and its work, counted.

Only what is trained is the model. A parameter with ``requires_grad=False`` and a buffer are part of the module, as data
are part of a federation: they are never in a flat model, and nothing changes them. A tensor that several layers share
is in a flat model once. The one exception are BatchNorm's running statistics where they are averaged: they follow the
parameters in a flat model, because they travel and are averaged with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module

from fedgauge.base.errors import InputError
from fedgauge.base.threads import ProcessLock


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name; one that several layers share is there once, under its first name.

    >>> module = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 1))
    >>> list(trainable(module))
    ['1.weight', '1.bias']
    """
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def fixed(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything in a module's ``state_dict`` that is not trained, by name: frozen parameters, then buffers.

    >>> [name for name, _ in fixed(nn.BatchNorm1d(2))]
    ['running_mean', 'running_var', 'num_batches_tracked']
    """
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter.detach()
    yield from module.named_buffers()


def flatten(module: nn.Module, statistics: Sequence[str] = ()) -> torch.Tensor:
    """A module's trainable parameters as one vector, followed by the buffers with these names.

    >>> flatten(nn.Linear(3, 2)).shape
    torch.Size([8])
    """
    parts = [parameter.detach().reshape(-1) for parameter in trainable(module).values()]
    return torch.cat([*parts, *(module.get_buffer(name).to(parts[0].dtype).reshape(-1) for name in statistics)])


def load_flat(module: nn.Module, row: torch.Tensor, statistics: Sequence[str] = ()) -> None:
    """Set a module's trainable parameters, and these buffers, to those of a flat model; the rest stays as it is."""
    parts = FlatModule(module, statistics).parts(row)
    with torch.no_grad():
        for name, parameter in trainable(module).items():
            parameter.copy_(parts[name])
        for name in statistics:
            module.get_buffer(name).copy_(parts[name])


class FlatModule:
    """Reads flat models as a module's trainable parameters, and calls the module with them.

    Args:
        module: the module.
        statistics: names of buffers that follow the parameters in a flat model.
        scratch: names of buffers that the module may change when it is called, in a copy that is then thrown away.

    Attributes:
        module: the module.
        trained: the names of the trainable parameters.
        num_trained: how many numbers they are.
        lock: held while the module is called, as its parameters are replaced meanwhile.
    """

    def __init__(self, module: nn.Module, statistics: Sequence[str] = (), scratch: Sequence[str] = ()) -> None:
        self.module, self.lock = module, ProcessLock()
        parameters: dict[str, torch.Tensor] = dict(trainable(module))
        self.trained = list(parameters)
        self.num_trained = sum(tensor.numel() for tensor in parameters.values())
        self._aliases = _aliases(module, parameters)
        self._statistics, self._scratch = tuple(statistics), tuple(scratch)
        parameters |= {name: module.get_buffer(name) for name in statistics}
        self._names = list(parameters)
        self._shapes = [tensor.shape for tensor in parameters.values()]
        self._sizes = [shape.numel() for shape in self._shapes]

    def parts(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters, and the statistics, by name, as views of a flat model."""
        split = torch.split(row, self._sizes)
        return {name: part.view(shape) for name, part, shape in zip(self._names, split, self._shapes, strict=True)}

    def leaves(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name, to differentiate by, which share the row's memory; and copies of the statistics."""
        parts = self.parts(row.detach())
        for name in self.trained:
            parts[name].requires_grad_()
        return parts | {name: parts[name].clone() for name in self._statistics}

    def statistics(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
        """The statistics among the parts as one vector, as the last call of the module has left them."""
        if not self._statistics:
            return None
        return torch.cat([parts[name].detach().reshape(-1) for name in self._statistics])

    @contextmanager
    def holding(self, parts: dict[str, torch.Tensor]) -> Iterator[None]:
        """Let the module have these parameters, for this thread alone.

        Whoever differentiates does so inside, as a module that recomputes activations (``torch.utils.checkpoint``) is
        called again by the backward pass.
        """
        parts = parts | {alias: parts[name] for alias, name in self._aliases.items()}
        for name in self._scratch:
            parts[name] = self.module.get_buffer(name).clone()
        with self.lock, _reparametrize_module(self.module, parts, tie_weights=False):
            yield

    def call(self, x: torch.Tensor) -> Any:
        """What the module returns with the parameters it holds: mostly a tensor, and always what the loss takes."""
        if x.ndim == 4:
            # Convolutions take a tenth less time on images whose channels lie next to each other.
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            return self.module(x)
        except ValueError as error:
            if "Expected more than 1 value per channel" not in str(error):
                raise
            raise InputError(
                "BatchNorm cannot normalise a batch of one sample by its own statistics; give every worker, every"
                " mini-batch and every sample of records at least two samples, or choose batch_norm='frozen'."
            ) from None

    def outputs(self, parts: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        """What the module returns with these parameters, where nothing is differentiated afterwards."""
        with self.holding(parts):
            return self.call(x)


def _aliases(module: nn.Module, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Further places of shared parameters, each with the name that the parameter has in a flat model.

    Torch finds them by itself too, but where a whole layer is used twice, and so has one place under two names, torch
    leaves the last values behind in the module instead of the parameter that was there.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    seen: set[tuple[int, str]] = set()
    aliases = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for own, parameter in part._parameters.items():
            place = id(part), own
            if parameter is None or place in seen or id(parameter) not in names:
                continue
            seen.add(place)
            called = f"{prefix}.{own}" if prefix else own
            if called != names[id(parameter)]:
                aliases[called] = names[id(parameter)]
    return aliases


def number_type(module: nn.Module) -> torch.dtype:
    """The number type of the trainable parameters, which must be one; frozen ones may have another."""
    types = {parameter.dtype: name for name, parameter in trainable(module).items()}
    if len(types) > 1:
        (one, name), (other, another) = list(types.items())[:2]
        raise InputError(
            f"All trainable parameters must have one number type, but {name} is {_called(one)} and {another} is"
            f" {_called(other)}; convert the module, for example with module.float()."
        )
    return next(iter(types))


def _called(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def forward_work(module: nn.Module, call: Callable[[], Any], samples: int) -> int:
    """About how many products of two numbers one sample's forward pass takes; at least one per parameter.

    A layer multiplies its weights with its inputs once for every place of its output: a pixel, a token. What layers do
    not multiply by weights, such as attention between tokens, is left out.

    Args:
        module: whose layers are counted.
        call: calls it once.
        samples: the number of samples in that call.

    >>> linear, images = nn.Linear(3, 2), nn.Conv2d(1, 4, 3, padding=1)
    >>> forward_work(linear, lambda: linear(torch.zeros(5, 3)), 5)
    8
    >>> forward_work(images, lambda: images(torch.zeros(2, 1, 8, 8)), 2)
    2560
    """
    total = 0

    def count(layer: nn.Module, given: Any, result: Any) -> None:
        nonlocal total
        output = result[0] if isinstance(result, tuple) else result
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
        if isinstance(output, torch.Tensor) and own:
            if isinstance(layer, nn.Embedding):
                total += output.numel()  # looks rows up
            else:
                features = output.shape[1 if isinstance(layer, nn.modules.conv._ConvNd) else -1]
                total += own * (output.numel() // max(features, 1))

    hooks = [part.register_forward_hook(count) for part in module.modules()]
    try:
        with torch.no_grad():
            call()
    finally:
        for hook in hooks:
            hook.remove()
    return max(total // samples, sum(parameter.numel() for parameter in module.parameters()))
