"""BatchNorm: by whose statistics a layer normalises, which decides what F_i is.

``frozen``    the running statistics that the module has, which never change: F_i is a function of the parameters alone.
``local``     the statistics of the batch at hand, in local steps and in exact passes: every worker normalises its own
              data by itself, and nothing but the parameters is sent.
``averaged``  in local steps the statistics of the mini-batch, as usual; the running statistics that this leaves behind
              travel with the model and are averaged as it is, and exact passes normalise by the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import nn

from fedgauge.errors import InputError, nearest
from fedgauge.system.notices import notify

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
    fedgauge.errors.InputError: batch_norm cannot be 'average'; did you mean averaged?
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
