"""What a user gives for a federation of data, checked before anything is computed with it."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.parameter import is_lazy

from fedgauge.base.errors import InputError
from fedgauge.federation.flat import FlatModule, number_type, trainable
from fedgauge.federation.kernels.base import Loss
from fedgauge.federation.shards import BLOCK, Samples


def made_by(model: nn.Module | Callable[[], nn.Module]) -> Any:
    """The module, or what the function for it makes."""
    if isinstance(model, nn.Module) or not callable(model):
        return model
    try:
        inspect.signature(model).bind()
    except TypeError as error:
        name = getattr(model, "__name__", type(model).__name__)
        raise InputError(
            f"The model must be a function without arguments, but {name} cannot be called so ({error}); wrap it, as in"
            f" lambda: {name}(...)."
        ) from None
    except ValueError:  # a callable that does not say what it takes
        pass
    return model()


def check_module(module: Any) -> nn.Module:
    """Return a module that has something to learn."""
    if isinstance(module, str | Path):
        raise InputError(
            f"The model must be a torch module, or a function that makes one, not the text {str(module)!r}; to make a"
            " model of fedgauge by its name, pass make_model(name, shape, classes).make and its loss."
        )
    if not isinstance(module, nn.Module):
        raise InputError(f"The model must be a torch module, or a function that makes one, not {_kind(module)}.")
    if not trainable(module):
        frozen = ": all of them are frozen, with requires_grad=False" if any(True for _ in module.parameters()) else ""
        raise InputError(f"The model has no parameters to learn{frozen}; give a module that has some.")
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise InputError(
                f"The size of the model's parameter {name} is not known before the model is called once, as with"
                " LazyLinear; call it with an example in the function that makes it."
            )
        if parameter.is_meta:
            raise InputError(f"The model's parameter {name} has no values (device meta); make the model with values.")
        if parameter.is_complex():
            raise InputError(f"The model's parameters must be real numbers, but {name} is complex; use their parts.")
    number_type(module)
    if any(isinstance(part, torch.jit.ScriptModule | nn.DataParallel) for part in module.modules()):
        raise InputError(
            "The model is scripted or a DataParallel, whose parameters cannot be replaced by those of flat models; give"
            " the module itself."
        )
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise InputError(
                f"The parameter {name} has a hook, which would not be called, as gradients are taken by flat models;"
                " change the weight in forward instead, for example by torch.nn.utils.parametrize."
            )
    return module


def check_loss(loss: Any) -> Loss:
    """Return a loss if it can be called."""
    if not callable(loss):
        raise InputError(f"loss must be a function of (outputs, targets), not {_kind(loss)}.")
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise InputError(
            f"loss must be a function of (outputs, targets), not the class {loss.__name__}; make one of it, as in"
            f" {loss.__name__}()."
        )
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = loss
    return function


def as_tensor(name: str, data: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor as it is, or a numpy array as a tensor, whose fractions take the number type ``dtype``.

    >>> as_tensor("inputs", np.array([[0.5]]), torch.float32)
    tensor([[0.5000]])
    """
    if isinstance(data, np.ndarray) and data.dtype.kind in "biuf":
        data = torch.from_numpy(data if data.flags.writeable else data.copy())
        if data.is_floating_point():
            data = data.to(dtype)
    if not isinstance(data, torch.Tensor):
        raise InputError(
            f"{name} must be a torch tensor or a numpy array of numbers, with one entry per sample, not {_kind(data)};"
            " convert it, for example with torch.stack or np.asarray."
        )
    if data.layout != torch.strided or data.is_quantized or data.is_complex() or data.is_meta:
        remedies = {
            "sparse": (data.layout != torch.strided, "call to_dense()"),
            "quantised": (data.is_quantized, "call dequantize()"),
            "complex": (data.is_complex(), "give real and imaginary parts, as torch.view_as_real does"),
            "without values (device meta)": (data.is_meta, "give tensors with values"),
        }
        problem, remedy = next((what, remedy) for what, (holds, remedy) in remedies.items() if holds)
        raise InputError(f"{name} must be a dense tensor of real numbers, not one that is {problem}; {remedy}.")
    if data.ndim == 0:
        raise InputError(f"{name} must have one entry per sample, not be a single number.")
    return data.detach() if data.requires_grad else data


def check_data(inputs: torch.Tensor, targets: torch.Tensor) -> Samples:
    """Return inputs and targets that fit each other, with labels as whole numbers of 64 bits."""
    if len(inputs) != len(targets):
        raise InputError(f"inputs and targets must be of one length, not {len(inputs)} and {len(targets)}.")
    if inputs.is_floating_point() and not all(bool(torch.isfinite(part).all()) for part in torch.split(inputs, BLOCK)):
        raise InputError("inputs must be finite, but hold NaN or infinity; clean the data.")
    return inputs, targets if targets.is_floating_point() else targets.to(torch.int64)


def joined(shards: Sequence[Any], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, list[range]]:
    """All workers' inputs and targets, one after another, and the places of each worker's own.

    >>> joined([(np.zeros((2, 3)), np.zeros(2, int)), (np.ones((4, 3)), np.ones(4, int))], torch.float32)[2]
    [range(0, 2), range(2, 6)]
    """
    inputs: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    places, first = [], 0
    if not isinstance(shards, Sequence) or isinstance(shards, str):
        raise InputError(f"shards must be a list of (inputs, targets) pairs, one per worker, not {_kind(shards)}.")
    for worker, pair in enumerate(shards):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(
                f"shards must hold one (inputs, targets) pair per worker, but worker {worker} has {_kind(pair)}."
            )
        x = as_tensor(f"The inputs of worker {worker}", pair[0], dtype)
        y = as_tensor(f"The targets of worker {worker}", pair[1], dtype)
        if len(x) != len(y):
            raise InputError(f"Worker {worker} has {len(x)} inputs and {len(y)} targets; give as many of each.")
        for name, part, all_parts in (("inputs", x, inputs), ("targets", y, targets)):
            if all_parts and part.shape[1:] != all_parts[0].shape[1:]:
                one, other = tuple(all_parts[0].shape[1:]), tuple(part.shape[1:])
                raise InputError(
                    f"All workers' {name} must have one shape per sample, but worker 0 has {one} and worker {worker}"
                    f" {other}."
                )
            all_parts.append(part)
        places.append(range(first, first + len(x)))
        first += len(x)
    if not places:
        raise InputError("shards must hold one (inputs, targets) pair per worker, but is empty.")
    return torch.cat(inputs), torch.cat(targets), places


def check_output(flat: FlatModule, loss: Loss, model: torch.Tensor, samples: Samples, targets: torch.Tensor) -> None:
    """Try a flat model on two samples, so that what does not fit is refused here and not in the middle of a run.

    Args:
        flat: the module that gives the outputs.
        loss: of them.
        model: its parameters.
        samples: the inputs and targets to try.
        targets: all targets, whose labels must fit the outputs.
    """
    (x, y), module = samples, flat.module
    if x.ndim == 4:
        # Such images reach the module as they are, others as copies.
        x = x.contiguous(memory_format=torch.channels_last)
    untouched = [(part, part.clone(), part._version) for part in (x, y)]
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    leaves = flat.leaves(model)
    try:
        with torch.enable_grad():
            outputs = flat.outputs(leaves, x)
    except InputError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        # Whole numbers are tokens, and fractions are features: a model that wants the other kind says so in riddles.
        kind = "" if x.is_floating_point() else "; whole numbers are tokens: convert features to floats"
        raise InputError(f"The model does not take inputs of shape {tuple(x.shape[1:])} ({reason}){kind}.") from None
    for name, buffer in module.named_buffers():
        if not torch.equal(before[name], buffer):
            raise InputError(
                f"The model changes its buffer {name} when it is called, so a worker's loss is not a function of"
                " the parameters alone; freeze it with module.eval()."
            )
    _check_untouched("model", "inputs", *untouched[0])
    if targets.dtype == torch.int64 and loss is functional.cross_entropy:
        _check_classes(outputs, targets)
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            # Torch only warns where (batch, 1) and (batch,) become a table of all pairs, which no one means.
            warnings.filterwarnings("error", message="Using a target size", category=UserWarning)
            value = loss(outputs, y)
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, UserWarning) as error:
        given = (
            f"of shape {tuple(outputs.shape)}" if isinstance(outputs, torch.Tensor) else f"that are {_kind(outputs)}"
        )
        shapes = f"outputs {given} and targets of shape {tuple(y.shape)}"
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(f"The loss does not take {shapes} ({reason}).") from None
    _check_untouched("loss", "targets", *untouched[1])
    if not isinstance(value, torch.Tensor):
        raise InputError(f"The loss must be one number, as a tensor, not {_kind(value)}.")
    if value.ndim:
        raise InputError(f"The loss must be one number, the mean over the batch, not of shape {tuple(value.shape)}.")
    trained = [leaves[name] for name in flat.trained]
    with warnings.catch_warnings():
        # A hook on gradients that says so now says it again in training.
        warnings.filterwarnings("ignore", message="Full backward hook", category=UserWarning)
        slopes = torch.autograd.grad(value, trained, allow_unused=True) if value.requires_grad else ()
    if all(slope is None for slope in slopes):
        raise InputError(
            "The loss has no gradient with respect to the model's parameters, so nothing can be learned; leave out"
            " detach(), no_grad(), argmax() and the like in the model and the loss."
        )
    if not math.isfinite(value.item()) and bool(torch.isfinite(y).all()):
        raise InputError(
            f"The loss of the first model on a few samples is {value.item()}, so no run could begin; check how the"
            " model begins and what the loss divides by."
        )


def check_targets(flat: FlatModule, loss: Loss, model: torch.Tensor, samples: Samples, data: Samples) -> None:
    """Refuse targets that are not finite, unless the loss leaves them out, as one for missing values does.

    Args:
        flat: the module that gives the outputs.
        loss: of them.
        model: its parameters.
        samples: a few samples from all over the data, tried beside those whose targets are not finite.
        data: all samples.
    """
    if not data[1].is_floating_point():
        return
    bad = (~torch.isfinite(data[1].reshape(len(data[1]), -1)).all(dim=1)).nonzero().flatten()
    if not len(bad):
        return
    x, y = (torch.cat([part[bad[: len(few)]], few]) for part, few in zip(data, samples, strict=True))
    with torch.no_grad():
        value = float(loss(flat.outputs(flat.parts(model), x), y))
    if not math.isfinite(value):
        raise InputError(
            f"targets must be finite, but {len(bad)} of {len(data[1])} samples have NaN or infinity, the first of them"
            f" number {int(bad[0])}; clean the data, or give a loss that leaves such targets out."
        )


def _check_untouched(who: str, what: str, now: torch.Tensor, before: torch.Tensor, version: int) -> None:
    """Refuse what changes samples in place, which would change the data from one call to the next."""
    same = torch.equal(now, before) or bool(torch.equal(now.isnan(), before.isnan()) and now.isnan().any())
    if now._version != version or not same:
        raise InputError(
            f"The {who} changes its {what} in place, and so would change the data at every call; let it work on a copy,"
            " for example x = x - 1 instead of x -= 1, and inplace=False."
        )


_IGNORED = -100
"""The target that torch's cross-entropy leaves out of the mean."""


def _check_classes(outputs: Any, targets: torch.Tensor) -> None:
    """Refuse outputs of cross-entropy that do not have one class per label: on axis 1, as torch has it."""
    if not isinstance(outputs, torch.Tensor):
        raise InputError(
            f"cross_entropy takes a tensor, but the model returns {_kind(outputs)}; write a loss that takes what the"
            " model returns."
        )
    known = targets[targets != _IGNORED] if targets.ndim > 1 else targets
    labels = (int(known.min()), int(known.max())) if known.numel() else (0, 0)
    if outputs.ndim != targets.ndim + 1 or labels[0] < 0 or labels[1] >= outputs.shape[1]:
        more = "" if targets.ndim == 1 else ", classes first: (batch, classes, time) for targets of (batch, time)"
        raise InputError(
            f"The model gives {tuple(outputs.shape[1:])} outputs per sample, which does not fit labels"
            f" {labels[0]} to {labels[1]}; give it one output per class{more}."
        )


def _kind(value: Any) -> str:
    """What something is, in words that fit into a sentence."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"
