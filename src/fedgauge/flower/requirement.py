"""Whether Flower is here, and of a version that fits."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fedgauge.errors import InputError

LEAST, BELOW = (1, 41), (2, 0)


def check_flower() -> None:
    """Refuse to go on without Flower, or with a release of it that has other interfaces."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(
            "This needs Flower, the package flwr, which is not installed; run: pip install 'fedgauge[flower]'."
        ) from None
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not LEAST <= numbers < BELOW:
        least, below = (".".join(map(str, numbers)) for numbers in (LEAST, BELOW))
        raise InputError(
            f"Flower {found} does not fit: fedgauge needs flwr>={least},<{below}; run: pip install 'fedgauge[flower]'."
        )
