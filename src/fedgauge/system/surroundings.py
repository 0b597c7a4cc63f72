"""What a caller's torch is set to: autocast, no_grad and inference_mode change results, and are undone inside fedgauge.

Whoever calls a function of fedgauge within ``torch.no_grad()`` means the code around the call, not the gradients that
fedgauge takes itself. The default number type belongs to the whole process, so that it cannot be changed for one call:
a federation refuses to be used under another one than it was made under.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fedgauge.errors import InputError

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def usual_torch() -> Iterator[None]:
    """Let torch compute as it does where nothing is around a call: with gradients, and in the tensors' own types.

    >>> import torch
    >>> with torch.no_grad(), usual_torch():
    ...     torch.is_grad_enabled()
    True
    """
    torch = sys.modules.get("torch")
    if torch is None:  # and so nothing can be set
        yield
        return
    casting = [kind for kind in _kinds() if torch.is_autocast_enabled(kind)]
    if not casting and torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in casting:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _kinds() -> tuple[str, ...]:
    """The kinds of devices there are."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


def undisturbed(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function compute the same whatever torch context it is called in.

    >>> import torch
    >>> with torch.inference_mode():
    ...     undisturbed(torch.is_inference_mode_enabled)()
    False
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with usual_torch():
            return function(*args, **kwargs)

    return call


def check_number_type(made_under: torch.dtype) -> None:
    """Refuse another default number type than a federation was made under."""
    import torch

    now = torch.get_default_dtype()
    if now != made_under:
        then = str(made_under).removeprefix("torch.")
        raise InputError(
            f"torch's default number type is {str(now).removeprefix('torch.')}, but was {then} when the federation was"
            f" made, so that the model could compute something else; call torch.set_default_dtype(torch.{then}), or"
            " make the federation again."
        )
