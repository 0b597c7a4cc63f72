"""What a module does in local steps and when it is measured, BatchNorm's statistics among it.

F_i has to be a function of the parameters alone, the same on every engine. A module that draws at random in its
``forward``, such as one with dropout, is therefore called in two ways. In local steps it is as it was given, and
torch's generator is seeded from the addressed streams before every mini-batch. In exact passes it is in eval mode, and
must then draw nothing. F_i is what the exact passes compute.

``frozen``    the running statistics that the module has, which never change: F_i is a function of the parameters alone.
``local``     the statistics of the batch at hand, in local steps and in exact passes: every worker normalises its own
              data by itself, and nothing but the parameters is sent.
``averaged``  in local steps the statistics of the mini-batch, as usual; the running statistics that this leaves behind
              travel with the model and are averaged as it is, and exact passes normalise by the average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.terminal import notify
from fedgauge.base.threads import seed_generators, separate_generator
from fedgauge.federation.flat import FlatModule
from fedgauge.federation.kernels.base import Loss

Augment = Callable[[torch.Tensor], torch.Tensor]
"""Changes a mini-batch of inputs at random, with torch's generator; used in local steps only."""

_CLOSE = 100.0
"""Roundings by which two losses of one model may differ, as devices may add up in any order."""

RANDOM = (
    "The model draws random numbers in local steps (dropout or the like): F_i is then an expectation over them, and"
    " losses, gradients and curvature are measured in eval mode, without them; no bound is a certificate for it."
)
AUGMENTED = (
    "Inputs are augmented at random in local steps: F_i is then an expectation over it, and losses, gradients and"
    " curvature are measured on the inputs as they are; no bound is a certificate for it."
)
UNEVEN = (
    "The loss of a batch is not the mean of its samples' losses, as where it divides by the number of targets that are"
    " not masked: F_i is the mean over blocks of up to 2048 samples, mini-batches estimate it with a bias, and no bound"
    " is a certificate."
)


@dataclass(frozen=True, eq=False)
class Mode:
    """How a module is called in local steps.

    Attributes:
        seeded: whether torch's generator has to be seeded before every mini-batch.
        switched: the parts that are in training mode in local steps, and in eval mode otherwise.
        remarks: what has to be said about F_i, in whole sentences.
        even: whether the loss of a batch is the mean of its samples' losses.
        device: where the module is, whose generator is seeded too.
    """

    seeded: bool = False
    switched: tuple[nn.Module, ...] = ()
    remarks: tuple[str, ...] = ()
    even: bool = True
    device: torch.device | None = None

    def measure(self) -> None:
        """Call the module as in exact passes from now on."""
        _switch(self.switched, False)

    @contextmanager
    def in_local_steps(self) -> Iterator[None]:
        """Call the module as in local steps; afterwards torch's generator is as it was."""
        _switch(self.switched, True)
        try:
            with separate_generator(self.device) if self.seeded else nullcontext():
                yield
        finally:
            _switch(self.switched, False)


def _switch(parts: tuple[nn.Module, ...], training: bool) -> None:
    for part in parts:
        part.training = training


def examine(
    flat: FlatModule,
    loss: Loss,
    model: torch.Tensor,
    samples: tuple[torch.Tensor, torch.Tensor],
    augment: Augment | None = None,
    batch_norm: BatchNorm = "frozen",
) -> Mode:
    """Call the loss twice at one model, and find out how the module has to be called; it is left in the measured mode.

    Args:
        flat: the module that gives the outputs, with its BatchNorm layers as exact passes need them.
        loss: of them.
        model: its parameters, as a flat model.
        samples: a few inputs and targets.
        augment: what changes inputs in local steps, if anything does.
        batch_norm: by whose statistics BatchNorm layers normalise, if there are any.

    >>> flat = FlatModule(nn.Linear(2, 1))
    >>> examine(flat, nn.functional.mse_loss, torch.ones(3), (torch.ones(2, 2), torch.ones(2, 1))).seeded
    False
    """
    x, y = samples
    normalising = tuple(part for _, part in layers(flat.module))
    training = tuple(part for part in flat.module.modules() if part.training and part not in normalising)

    def value(x: torch.Tensor = x, y: torch.Tensor = y) -> float:
        with torch.no_grad():
            return float(loss(flat.outputs(flat.parts(model), x), y))

    with separate_generator(model.device):
        seed_generators(0, model.device)
        first, draws = _watched(value, model.device)
        second = value()
        if not draws and not _agree(first, second, model.dtype):
            raise InputError(
                f"One model has two losses, {first:.6g} and {second:.6g}: it draws random numbers that do not come from"
                " torch's own generator, so that no run could be repeated; draw with torch.rand and the like."
            )
        if draws:
            seed_generators(0, model.device)
            again = value()
            if not _agree(first, again, model.dtype):
                raise InputError(
                    f"One model has two losses with one seed of torch's generator, {first:.6g} and {again:.6g}, so that"
                    " no run could be repeated; draw all random numbers with torch.rand and the like."
                )
            _switch(training, False)
            first, still = _watched(value, model.device)
            if still or not _agree(first, value(), model.dtype):
                _switch(training, True)
                raise InputError(
                    "The model draws random numbers in eval mode too, so that its loss cannot be measured; draw only"
                    " where self.training is true, as in F.dropout(x, training=self.training)."
                )
        # By its own statistics, a batch of one sample is all zeros or cannot be normalised at all.
        by_worker = bool(normalising) and batch_norm == "local"
        even = not by_worker and _is_even(value, x, y, model.dtype)
    remarks = [RANDOM] * draws + [AUGMENTED] * (augment is not None) + [LOCAL if by_worker else UNEVEN] * (not even)
    mode = Mode(draws or augment is not None, training if draws else (), tuple(remarks), even, model.device)
    if normalising and batch_norm == "averaged":
        return replace(mode, switched=mode.switched + normalising, remarks=(*mode.remarks, AVERAGED), even=False)
    return mode


def _watched(call: Callable[[], float], device: torch.device) -> tuple[float, bool]:
    """What a call returns, and whether it took numbers from torch's generator."""
    before = _states(device)
    result = call()
    return result, any(not torch.equal(*pair) for pair in zip(before, _states(device), strict=True))


def _states(device: torch.device) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


def _agree(one: float, other: float, dtype: torch.dtype) -> bool:
    return one == other or abs(one - other) <= _CLOSE * torch.finfo(dtype).eps * max(abs(one), abs(other))


def _is_even(value: Callable[..., float], x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the loss of a batch is the mean of its samples' losses."""
    singles = [value(x[number : number + 1], y[number : number + 1]) for number in range(len(x))]
    return _agree(value(), sum(singles) / len(singles), dtype)


BatchNorm = Literal["frozen", "local", "averaged"]
CHOICES: tuple[BatchNorm, ...] = ("frozen", "local", "averaged")

LOCAL = (
    "BatchNorm normalises every batch by its own statistics, which are its worker's: F_i is the mean over blocks of up"
    " to 2048 samples of worker i, mini-batches estimate it with a bias, test examples are normalised together, and no"
    " bound is a certificate."
)
AVERAGED = (
    "BatchNorm's running statistics are averaged with the model: F_i is measured with the averages and changes with"
    " them, so that it is not a function of the parameters alone; L_h is not recorded along the run, measuring keeps"
    " the statistics of the model that it is given, and no bound is a certificate."
)


def check_choice(how: str) -> BatchNorm:
    """Return what ``batch_norm`` may be.

    >>> check_choice("average")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: batch_norm cannot be 'average'; did you mean averaged?
    """
    if how not in CHOICES:
        raise InputError(f"batch_norm cannot be {how!r}; {nearest(str(how), CHOICES)}")
    return how


def layers(module: nn.Module) -> Iterator[tuple[str, nn.modules.batchnorm._BatchNorm]]:
    """The BatchNorm layers of a module, by name."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            yield name, part


def running(module: nn.Module) -> tuple[str, ...]:
    """The names of the running means and variances of a module's BatchNorm layers.

    >>> running(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    ('1.running_mean', '1.running_var')
    """
    kinds = ("running_mean", "running_var")
    return tuple(f"{name}.{kind}" if name else kind for name, _ in layers(module) for kind in kinds)


def counters(module: nn.Module) -> tuple[str, ...]:
    """The names of the buffers in which a module's BatchNorm layers count batches."""
    return tuple(f"{name}.num_batches_tracked" if name else "num_batches_tracked" for name, _ in layers(module))


def settle(module: nn.Module, how: BatchNorm) -> nn.Module:
    """Put a module's BatchNorm layers in the mode of exact passes, and say so where they are frozen."""
    changed = []
    if how != "frozen" and not running(module):
        raise InputError(f"batch_norm={how!r} is for BatchNorm layers, and the model has none; leave it out.")
    for name, part in layers(module):
        if not part.track_running_stats:
            raise InputError(
                f"BatchNorm ({name}) has no running statistics, so that a sample's loss always depends on its batch;"
                " use GroupNorm, or make it with track_running_stats=True."
            )
        if how == "averaged" and part.momentum is None:
            raise InputError(
                f"BatchNorm ({name}) has momentum=None, whose statistics depend on how many batches there were; give it"
                " a momentum, such as 0.1, to average them."
            )
        if part.training and how == "frozen":
            changed.append(name)
        part.train(how == "local")
    if changed:
        which = f"BatchNorm ({changed[0]})" if len(changed) == 1 else f"The {len(changed)} BatchNorm layers"
        notify(
            f"{which} will use the running statistics that the module has now, and keep them: F_i is then a function of"
            " the parameters alone. In a new module these are mean 0 and variance 1, which normalises nothing; load"
            " trained ones first, use GroupNorm, or let batch_norm be local or averaged."
        )
    return module
