"""A theorem's bound, evaluated: its terms, its conditions and its source."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from fedgauge.base.codec import Value
from fedgauge.base.symbols import symbol
from fedgauge.base.types import Array
from fedgauge.values.display import Displayed
from fedgauge.values.estimates import Kind, is_safe

Number = float | Array
"""A number, or an array of numbers if a formula is evaluated on a whole grid at once."""
Version = Literal["printed", "corrected", "sharp", "star", "prior"]


@dataclass(frozen=True)
class Term(Value):
    """One summand of a bound: its name, formula, value and the symbols in it."""

    name: str
    formula: str
    value: Number
    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.symbols:
            symbol(name)


@dataclass(frozen=True)
class Condition(Value):
    """An inequality ``value <= limit`` that a bound needs.

    Attributes:
        name: the limited quantity, e.g. ``gamma``.
        formula: formula of the limit.
        limit: value of the limit.
        value: value of the quantity, which must not exceed the limit.

    >>> condition = Condition("gamma", "1/(2 I L_g)", limit=0.5, value=0.25)
    >>> bool(condition.holds), float(condition.margin)
    (True, 2.0)
    """

    name: str
    formula: str
    limit: Number
    value: Number

    @property
    def holds(self) -> Any:
        """Whether the value is within the limit; on a grid, an array of answers."""
        return np.less_equal(self.value, self.limit)

    @property
    def margin(self) -> Any:
        """The factor by which the value could grow; it is at least 1 if the condition holds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(self.limit, self.value)


@dataclass(frozen=True)
class Source(Value):
    """Where a bound comes from, and how it differs from the printed one.

    Attributes:
        paper: title of the paper.
        locator: where the paper states the theorem.
        version: the version of the theorem.
        deviations: differences from the printed theorem.
        sound: whether this version is true; false for a printed theorem that had to be corrected.
    """

    paper: str
    locator: str
    version: Version
    deviations: tuple[str, ...] = ()
    sound: bool = True


@dataclass(frozen=True)
class Bound(Value, Displayed):
    """An upper bound on a quantity: terms that add up, conditions that must hold, and its source.

    Attributes:
        quantity: the bounded quantity, in symbols.
        terms: the summands.
        conditions: what must hold for the bound to be true.
        source: theorem, version and deviations.
        gamma_max: the largest gamma that meets every condition, if all other values, eta included, stay the same.
        gamma_eta_max: the limit on the product gamma * eta alone; infinite if there is none.
        kinds: the kind of each constant in the bound; one that is neither ``exact`` nor ``upper`` (for mu: ``lower``)
            makes the bound a plug-in.
    """

    quantity: str
    terms: tuple[Term, ...]
    conditions: tuple[Condition, ...]
    source: Source
    gamma_max: Number = float("inf")
    gamma_eta_max: Number = float("inf")
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def total(self) -> Any:
        """The sum of the terms."""
        return sum((term.value for term in self.terms), start=cast(Number, 0.0))

    @property
    def admissible(self) -> Any:
        """Whether every condition holds."""
        holds = (condition.holds for condition in self.conditions)
        return functools.reduce(np.logical_and, holds, np.True_)  # one condition may broadcast against another

    @property
    def certified(self) -> Any:
        """Whether the version is sound, every condition holds and every constant is safe (see ``kinds``)."""
        safe = self.source.sound and all(is_safe(name, kind) for name, kind in self.kinds.items())
        return np.logical_and(self.admissible, safe)


@dataclass(frozen=True)
class Inequality(Value):
    """Both sides of an inequality ``left <= right``.

    Attributes:
        name: the proposition or lemma.
        left: the side claimed to be smaller.
        right: the side claimed to be larger.
        conditions: what the claim needs; where one fails, ``holds`` says nothing about the claim.

    >>> bool(Inequality("Lemma", 1.0, 2.0).holds)
    True
    """

    name: str
    left: Number
    right: Number
    conditions: tuple[Condition, ...] = ()

    @property
    def holds(self) -> Any:
        """Whether left <= right, up to rounding."""
        return np.asarray(self.left) <= np.asarray(self.right) * (1 + 1e-9) + np.finfo(float).tiny

    @property
    def applies(self) -> bool:
        """Whether every condition of the claim holds."""
        return all(bool(np.all(condition.holds)) for condition in self.conditions)
