"""What a constant was proved for, and the one place that decides whether a bound speaks about the same thing.

F and d0 belong to one first model, G to the models near one, and every constant to one federation: its data, shards,
model, loss and batch size. A bound is a certificate only where all of them are those of the run that it speaks about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedgauge.codec import Value

_OF_START = ("F", "d0", "G")
"""The constants that belong to a first model: G holds near it."""


@dataclass(frozen=True)
class Scope(Value):
    """What a constant was proved for; an entry that is None is not known.

    Attributes:
        federation: digest of the federation.
        start: for F, d0 and G, digest of the first model.
        seed: the seed for which the federation itself makes that first model, where it does.
        radius: for G, how far any entry of a model may be from that of the first model.
    """

    federation: str | None = None
    start: str | None = None
    seed: int | None = None
    radius: float | None = None

    def of(self, symbol: str) -> Scope:
        """Return the part that matters for a constant: the first model only for F, d0 and G, the region only for G."""
        if symbol not in _OF_START:
            return Scope(self.federation)
        return self if symbol == "G" else Scope(self.federation, self.start, self.seed)

    def to_json(self) -> dict[str, Any]:
        """Return the entries that are known."""
        return {name: entry for name, entry in super().to_json().items() if entry is not None}


@dataclass(frozen=True)
class Subject:
    """What a bound speaks about; an entry that is None is left open.

    Attributes:
        federation: digest of the federation.
        start: digest of the first model.
        seed: the seed, where the first model is the federation's own for it.
        travel: how far any entry of a model can get from that of the first model; None where nothing limits it.
    """

    federation: str | None = None
    start: str | None = None
    seed: int | None = None
    travel: float | None = None


def misfit(symbol: str, scope: Scope | None, subject: Subject) -> str | None:
    """Say why a constant does not belong to the subject of a bound; None if it does.

    A constant without a scope is a number that somebody typed and vouches for. What the subject leaves open is not
    compared: the bound is then about whatever the constant belongs to.

    >>> misfit("F", Scope("fed", start="a", seed=0), Subject("fed", seed=0)) is None
    True
    >>> misfit("F", Scope("fed", start="a", seed=0), Subject("fed", start="b"))
    'belongs to another first model'
    >>> misfit("L_g", Scope("fed", start="a", seed=0), Subject("fed", start="b")) is None
    True
    """
    if scope is None:
        return None
    if subject.federation is not None and scope.federation != subject.federation:
        return "belongs to another federation" if scope.federation else "does not say to which federation it belongs"
    if symbol not in _OF_START:
        return None
    if scope.start is None and scope.seed is None:
        return "does not say to which first model it belongs"
    if subject.start is not None and scope.start is not None:
        same = scope.start == subject.start
    elif subject.seed is not None:
        same = scope.seed == subject.seed
    else:
        same = subject.start is None
    if not same:
        return "belongs to another first model"
    if symbol == "G":
        if scope.radius is None:
            return "does not say for which models it holds"
        if subject.travel is None or not subject.travel <= scope.radius:
            return f"holds only for models within {scope.radius:.3g} of the first one, which a run may leave"
    return None
