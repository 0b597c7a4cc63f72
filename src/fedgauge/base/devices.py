"""Which device to compute on."""

from __future__ import annotations

import torch

from fedgauge.base.errors import InputError
from fedgauge.base.terminal import notify


def choose_device(device: str) -> torch.device:
    """A device that can be used; ``auto`` is this machine's accelerator, or the CPU if it has none.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        chosen = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
        notify(f"Computing on {chosen.type}, as device is auto.")
        return chosen
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".;")
        raise InputError(
            f"device {device!r} cannot be used: {reason}; give auto, for this machine's accelerator if it has one, or"
            " leave it out for the CPU."
        ) from None
    return chosen
