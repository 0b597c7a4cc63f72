"""Constants, how far each of them may be trusted, and what each was proved for.

F and d0 belong to one first model, G to the models near one, and every constant to one federation: its data, shards,
model, loss and batch size. A bound is a certificate only where all of them are those of the run that it speaks about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Self

from fedgauge.base.codec import Value
from fedgauge.base.errors import InputError, UnknownNameError, nearest
from fedgauge.base.symbols import SIGNED, symbol
from fedgauge.values.display import Displayed

Kind = Literal["exact", "upper", "lower", "sample", "assumed"]


SETTINGS = frozenset(("I", "R", "N", "M", "gamma", "eta", "beta", "beta1", "beta2", "tau"))
"""What a user chooses; every other symbol is a constant of the federation."""


def is_safe(name: str, kind: Kind) -> bool:
    """Say whether a bound still holds if a number of this kind is put into it.

    Every bound grows with its constants, except for mu: there, a value that is too large makes a bound too small. In a
    setting, a bound may fall (R, N) or turn (gamma), so that only the exact number is safe.

    >>> is_safe("L_g", "upper"), is_safe("mu", "upper"), is_safe("R", "upper")
    (True, False, False)
    """
    if name in SETTINGS:
        return kind == "exact"
    return kind in ("exact", "lower" if name == "mu" else "upper")


@dataclass(frozen=True)
class Estimate(Value):
    """A measured or computed constant and how far it may be trusted.

    Attributes:
        symbol: name of the constant in :mod:`fedgauge.base.symbols`.
        value: the number.
        low: lower end of the interval.
        high: upper end of the interval.
        kind: ``exact`` for a number known to rounding, where the interval holds the truth and the value is its safe
            end; ``upper`` or ``lower`` for a bound on the constant; ``sample`` for an estimate that may err on either
            side; ``assumed`` for a number that nobody has measured or vouches for.
        method: how it was obtained.
        cost: what it cost to obtain, e.g. ``{"gradient passes": 2}``.
        scope: what it was proved for; None for a number that whoever gave it vouches for.

    >>> Estimate.exact("L_h", 0.5, "largest eigenvalue").certain
    True
    """

    symbol: str
    value: float
    low: float
    high: float
    kind: Kind
    method: str
    cost: Mapping[str, float] = field(default_factory=dict)
    scope: Scope | None = None

    def __post_init__(self) -> None:
        symbol(self.symbol)
        if self.value < 0 and self.symbol not in SIGNED:
            raise InputError(f"{self.symbol} must be at least 0, not {self.value!r}.")
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"{self.symbol} = {self.value!r} must lie in its interval, not outside [{self.low!r}, {self.high!r}]."
            )

    @classmethod
    def exact(cls, symbol: str, value: float, method: str) -> Self:
        """Make an estimate that is exact up to rounding, with an interval of zero width."""
        return cls(symbol, value, value, value, "exact", method)

    @classmethod
    def enclosed(cls, symbol: str, low: float, high: float, method: str) -> Self:
        """Make an estimate that is exact up to rounding, from an interval that holds the truth.

        Its value is the conservative endpoint, with which a bound still holds: the upper one, for mu the lower one.

        >>> Estimate.enclosed("mu", 0.1, 0.2, "eigenvalue").value
        0.1
        """
        return cls(symbol, low if symbol == "mu" else high, low, high, "exact", method)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as an object, without a scope if it has none."""
        entries = super().to_json()
        return entries if self.scope else {name: entry for name, entry in entries.items() if name != "scope"}

    @property
    def certain(self) -> bool:
        """Whether a bound with this estimate still holds: true for ``exact`` and ``upper`` (for mu: ``lower``)."""
        return is_safe(self.symbol, self.kind)


@dataclass(frozen=True)
class Constants(Value, Mapping[str, Estimate], Displayed):
    """The constants of a federation: a mapping from symbols to estimates.

    >>> constants = Constants((Estimate.exact("L_h", 0.5, "eigenvalue"),))
    >>> constants["L_h"].value, "L_g" in constants, list(constants)
    (0.5, False, ['L_h'])
    """

    estimates: tuple[Estimate, ...]

    def __post_init__(self) -> None:
        names = [estimate.symbol for estimate in self.estimates]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Constants must hold each symbol once, not {name} {names.count(name)} times.")

    def __getitem__(self, name: str) -> Estimate:
        for estimate in self.estimates:
            if estimate.symbol == name:
                return estimate
        raise UnknownNameError(f"{name} was not measured; {nearest(name, self)}")

    def __iter__(self) -> Iterator[str]:
        return (estimate.symbol for estimate in self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    def within(self, scope: Scope) -> Self:
        """Return the constants with this scope; the first model and the region only where they matter."""
        return replace(self, estimates=tuple(replace(item, scope=scope.of(item.symbol)) for item in self.estimates))

    def fitted(self, subject: Subject) -> tuple[Self, tuple[str, ...]]:
        """Return the constants as they count for the subject of a bound, and a sentence on each that counts for less.

        A safe constant that belongs to something else counts as ``assumed``, which makes a bound a plug-in. What the
        subject leaves open is that of the first constant that says it, so that constants of two federations, or of two
        first models, do not pass for one.

        >>> made = Constants((Estimate.exact("F", 2.0, "f(x0) - f*"),)).within(Scope("fed", start="a"))
        >>> there, notes = made.fitted(Subject("fed", start="b"))
        >>> there["F"].kind, notes
        ('assumed', ('F counts as assumed, because it belongs to another first model.',))
        """
        scopes = [item.scope for item in self.estimates if item.scope and item.certain]
        federation, start = subject.federation, subject.start
        if federation is None:
            federation = next((scope.federation for scope in scopes if scope.federation), None)
        if start is None and subject.seed is None:
            start = next((scope.start for scope in scopes if scope.start), None)
        about = replace(subject, federation=federation, start=start)
        estimates, notes = [], []
        for item in self.estimates:
            why = misfit(item.symbol, item.scope, about) if item.certain else None
            estimates.append(replace(item, kind="assumed") if why else item)
            notes += [f"{item.symbol} counts as assumed, because it {why}."] if why else []
        return replace(self, estimates=tuple(estimates)), tuple(notes)


def initial_gap(
    loss: float, floor: float, ceiling: float | None = None, *, rounding: float = 0.0, method: str = ""
) -> Estimate:
    """Return F = f(x0) - f*, the gap between the first loss and the smallest, with its interval.

    Args:
        loss: f(x0).
        floor: a lower bound of f*; 0 for a loss that is never negative.
        ceiling: an upper bound of f*; by default, f(x0) itself. If it equals the floor, F is exact.
        rounding: the largest possible rounding error of ``loss``.
        method: how F was obtained; by default, a description of the difference.

    >>> gap = initial_gap(2.5, floor=0.0)
    >>> gap.low, gap.high, gap.kind, gap.method
    (0.0, 2.5, 'upper', 'f(x0) - 0, as f is at least 0')
    >>> initial_gap(2.5, floor=1.0, ceiling=1.0).kind
    'exact'
    """
    high = max(loss + rounding - floor, 0.0)
    if ceiling == floor and rounding == 0:
        return Estimate.exact("F", high, method or "f(x0) - f*")
    if loss + rounding < floor:
        return Estimate("F", inf, 0.0, inf, "upper", f"f(x0) is below {floor:g}, so nothing here bounds f*")
    low = 0.0 if ceiling is None else min(max(loss - rounding - ceiling, 0.0), high)
    return Estimate("F", high, low, high, "upper", method or f"f(x0) - {floor:g}, as f is at least {floor:g}")


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
