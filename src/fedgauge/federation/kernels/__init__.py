"""Fast paths: the operations on rows, each written for one family of models, and how one is chosen."""

from __future__ import annotations

from fedgauge.base.errors import InputError, nearest
from fedgauge.federation.kernels.autograd import Autograd
from fedgauge.federation.kernels.base import Kernel, Learner, has_frozen, has_hooks, hooks_of_all_modules
from fedgauge.federation.kernels.convolutional import Convolutional
from fedgauge.federation.kernels.dense import DenseStack

__all__ = ["KERNELS", "Kernel", "Learner", "check_path", "choose", "has_frozen", "has_hooks", "hooks_of_all_modules"]

KERNELS: tuple[type[Kernel], ...] = (
    DenseStack,
    Convolutional,
    Autograd,
)
"""In order of preference; the last one serves every module, and defines what the others must agree with."""


def check_path(path: str) -> str:
    """Return ``path`` if it is ``auto`` or names a kernel."""
    names = ["auto", *(kernel.name for kernel in KERNELS)]
    if path not in names:
        raise InputError(f"There is no path {path!r}; {nearest(str(path), names)}")
    return path


def choose(learner: Learner, path: str = "auto") -> Kernel:
    """Make the first kernel that can serve a learner, or the one that ``path`` names.

    Only the last one, which calls the module, honours hooks and frozen parameters; the others would compute as if
    there were none.
    """
    hooks, frozen = has_hooks(learner.module), has_frozen(learner.module)
    for kernel in KERNELS:
        if path not in ("auto", kernel.name):
            continue
        made = kernel.of(learner) if not (hooks or frozen) or kernel is KERNELS[-1] else None
        if made is not None:
            return made
        if path == kernel.name:
            more = [", without hooks"] * hooks + [", with no parameter frozen"] * frozen
            raise InputError(f"path {path} needs {kernel.needs}{''.join(more)}.")
    raise InputError(f"There is no path {path!r} that can serve this model; choose auto.")
