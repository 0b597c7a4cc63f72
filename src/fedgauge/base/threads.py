"""What all of a process shares: torch's threads, generator and modes, modules being called, the allocator.

Whoever calls a function of fedgauge within ``torch.no_grad()`` means the code around the call, not the gradients that
fedgauge takes itself. The default number type belongs to the whole process, so that it cannot be changed for one call:
a federation refuses to be used under another one than it was made under.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fedgauge.base.errors import InputError

if TYPE_CHECKING:
    import torch


class ProcessLock:
    """A lock that its thread may take again, and that is free in every new process.

    A process that is forked while another thread holds a lock would otherwise wait for ever: that thread is not there.
    """

    def __init__(self) -> None:
        self._lock, self._process = RLock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are locks of their own."""
        return ProcessLock, ()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._lock, self._process = RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_GENERATOR = ProcessLock()


@contextmanager
def separate_generator(device: torch.device | None = None) -> Iterator[None]:
    """Torch's own generators, of the CPU and of this device, for this thread alone, restored afterwards.

    Without the lock, federations that are made in several threads would draw from each other's seeds. No other device
    is touched: a process that is forked later could not use it.
    """
    import torch

    module = None if device is None or device.type == "cpu" else torch.get_device_module(device)
    with _GENERATOR:
        state, there = torch.get_rng_state(), None if module is None else module.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(state)
            if module is not None:
                module.set_rng_state(there)


def seed_generators(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's own generators, of the CPU and of this device."""
    import torch

    torch.default_generator.manual_seed(seed)
    if device is not None and device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, so that sums are the same on every machine; rows are too small to benefit from more.

    Two threads that wait for each other on a busy machine took up to fifty times as long as one.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_KEPT = 128 << 20
_LARGEST = 32 << 20  # the most that glibc accepts


def keep_freed_memory() -> None:
    """Let this process keep up to 128 MiB that it frees, for what it allocates next, where the C library is glibc.

    By default glibc gives tensors of a few megabytes back to the system when a local step ends, and the next step waits
    for the same pages to be cleared again: a tenth to a fifth of a step of the paper's CNN. It concerns the whole
    process, so only processes that are fedgauge's own call it, never the one of a program that uses it as a library.
    """
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_option(_TRIM_THRESHOLD, _KEPT)
        set_option(_MMAP_THRESHOLD, _LARGEST)


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
