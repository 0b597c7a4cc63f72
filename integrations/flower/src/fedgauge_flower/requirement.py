"""Check that a suitable Flower is installed, and that a SuperLink listens at an address."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError, version

from fedgauge.base.errors import InputError, MachineError

LEAST, BELOW = (1, 41), (2, 0)


def check_flower() -> None:
    """Raise an error if Flower is not installed, or if its release is not supported."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(
            "This needs Flower, the package flwr, which is not installed; run: pip install fedgauge-flower."
        ) from None
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not LEAST <= numbers < BELOW:
        least, below = (".".join(map(str, numbers)) for numbers in (LEAST, BELOW))
        raise InputError(
            f"Flower {found} is not supported: fedgauge needs flwr>={least},<{below}; run: pip install fedgauge-flower."
        )


def check_address(address: str, seconds: float = 3.0) -> None:
    """Raise an error if no SuperLink listens at an address.

    Args:
        address: the address, as ``host:port``.
        seconds: the number of seconds to wait for an answer.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"The SuperLink's address must be host:port, such as 127.0.0.1:8000, not {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        raise MachineError(
            f"No SuperLink listens at {address} ({why}); start one with flower-superlink, or correct the address."
        ) from None
