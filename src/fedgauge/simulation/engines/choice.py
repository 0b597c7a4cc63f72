"""The names of the engines."""

from __future__ import annotations

from fedgauge.errors import InputError, nearest

ENGINES = ("local", "ray")


def check_engine(name: str | None, address: str | None = None) -> None:
    """Refuse an engine that does not exist, and an address without a cluster to join.

    >>> check_engine("rey")
    Traceback (most recent call last):
    fedgauge.errors.InputError: There is no engine 'rey'; did you mean ray?
    """
    if name not in (*ENGINES, None):
        raise InputError(f"There is no engine {name!r}; {nearest(str(name), ENGINES)}")
    if address is not None and name != "ray":
        raise InputError(f"address = {address} names a cluster, which needs engine = ray; set the engine too.")
