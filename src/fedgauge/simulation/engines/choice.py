"""Which engines there are."""

from __future__ import annotations

from fedgauge.errors import InputError, nearest

ENGINES = ("local", "ray")


def check_engine(name: str | None, address: str | None = None) -> None:
    """Refuse an engine that there is not, and an address that it does not take.

    >>> check_engine("rey")
    Traceback (most recent call last):
    fedgauge.errors.InputError: There is no engine 'rey'; did you mean ray?
    """
    if name not in (*ENGINES, None):
        raise InputError(f"There is no engine {name!r}; {nearest(str(name), ENGINES)}")
    if address is not None and name != "ray":
        raise InputError(f"address = {address} is that of a cluster, for engine = ray; give the engine too.")
