"""Constants and how far each of them may be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Self

from fedgauge.codec import Value
from fedgauge.errors import InputError, UnknownNameError, nearest
from fedgauge.symbols import SIGNED, symbol
from fedgauge.values.display import Displayed
from fedgauge.values.scopes import Scope, Subject, misfit

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
        symbol: name of the constant in :mod:`fedgauge.symbols`.
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

        Its value is the end with which a bound still holds: the upper one, for mu the lower one.

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
        found, notes = [], []
        for item in self.estimates:
            why = misfit(item.symbol, item.scope, about) if item.certain else None
            found.append(replace(item, kind="assumed") if why else item)
            notes += [f"{item.symbol} counts as assumed, because it {why}."] if why else []
        return replace(self, estimates=tuple(found)), tuple(notes)


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
