"""The frozen values that flow through the program, validated when made, with JSON both ways.

JSON is written as Python's ``json`` module writes it: an infinite number appears as ``Infinity``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt

from fedgauge.errors import InputError, nearest
from fedgauge.symbols import symbol

Array = npt.NDArray[Any]
Number = float | Array
"""A number, or an array of them where a formula is evaluated on a whole grid at once."""

Kind = Literal["exact", "upper", "lower", "sample", "assumed"]
Version = Literal["printed", "corrected", "sharp", "prior"]
Status = Literal["finished", "target", "diverged", "stopped"]


def is_safe(name: str, kind: Kind) -> bool:
    """Say whether a bound fed with this kind of a constant still holds.

    Every bound grows with its constants, but for mu: a convexity that is guessed too large is the dangerous one.
    """
    return kind in ("exact", "lower" if name == "mu" else "upper")


def _encode(value: Any) -> Any:
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        options = [argument for argument in arguments if argument is not type(None)]
        if np.ndarray in [typing.get_origin(option) for option in options]:
            return np.asarray(data) if isinstance(data, list) else _decode(float, data, where)
        if len(options) == 1:
            return _decode(options[0], data, where)
        return data
    if origin is Literal:
        if data not in arguments:
            raise InputError(f"{where} must be one of {', '.join(map(str, arguments))}, not {data!r}.")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise InputError(f"{where} must be a list, not {data!r}.")
        return tuple(_decode(arguments[0], item, where) for item in data)
    if origin in (dict, Mapping):
        if not isinstance(data, Mapping):
            raise InputError(f"{where} must be an object, not {data!r}.")
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is np.ndarray or hint is np.ndarray:
        return np.asarray(data, dtype=float)
    if isinstance(hint, type) and issubclass(hint, Value):
        return hint.from_json(data)
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if hint in (int, float, str, bool) and (not isinstance(data, hint) or isinstance(data, bool) > (hint is bool)):
        raise InputError(f"{where} must be of type {hint.__name__}, not {data!r}.")
    return data


@dataclass(frozen=True)
class Value:
    """What every value shares: JSON both ways, with unknown and missing names told apart."""

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain lists, objects and numbers."""
        return {item.name: _encode(getattr(self, item.name)) for item in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make the value from what :meth:`to_json` returned."""
        if not isinstance(data, Mapping):
            raise InputError(f"{cls.__name__} is read from a JSON object, not from {data!r}.")
        fields = {item.name: item for item in dataclasses.fields(cls)}
        for name in data:
            if name not in fields:
                raise InputError(f"{cls.__name__} has no entry {name!r}; {nearest(name, fields)}")
        for name, item in fields.items():
            optional = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
            if name not in data and not optional:
                raise InputError(f"{cls.__name__} needs the entry {name!r}.")
        hints = typing.get_type_hints(cls)
        return cls(**{name: _decode(hints[name], item, f"{cls.__name__}.{name}") for name, item in data.items()})


@dataclass(frozen=True)
class Estimate(Value):
    """A measured or computed constant and how far it may be trusted.

    Attributes:
        symbol: its name in :mod:`fedgauge.symbols`.
        value: the number.
        low: lower end of its interval.
        high: upper end of its interval.
        kind: ``exact``; ``upper`` or ``lower`` for a bound on the constant; ``sample`` for an estimate that may
            err on either side; ``assumed`` for a number that nobody has measured or vouches for.
        method: how it was obtained.
        cost: what it took, e.g. ``{"gradient passes": 2}``.

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

    def __post_init__(self) -> None:
        symbol(self.symbol)
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"{self.symbol} = {self.value!r} must lie in its interval, not outside [{self.low!r}, {self.high!r}]."
            )

    @classmethod
    def exact(cls, symbol: str, value: float, method: str) -> Self:
        """Make an estimate that is exact to rounding, with an interval of no width."""
        return cls(symbol, value, value, value, "exact", method)

    @property
    def certain(self) -> bool:
        """Whether a bound fed with it still holds: true for ``exact`` and ``upper`` (for mu: ``lower``)."""
        return is_safe(self.symbol, self.kind)


@dataclass(frozen=True)
class Constants(Value):
    """The constants of a federation, each an :class:`Estimate`, looked up by symbol.

    >>> constants = Constants((Estimate.exact("L_h", 0.5, "eigenvalue"),))
    >>> constants["L_h"].value, "L_g" in constants
    (0.5, False)
    """

    estimates: tuple[Estimate, ...]

    def __post_init__(self) -> None:
        names = [estimate.symbol for estimate in self.estimates]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Constants must hold each symbol once, not {name} {names.count(name)} times.")

    def __getitem__(self, name: str) -> Estimate:
        found = self.get(name)
        if found is None:
            raise InputError(f"{name} was not measured; {nearest(name, [e.symbol for e in self.estimates])}")
        return found

    def get(self, name: str) -> Estimate | None:
        """The estimate of a symbol, where there is one."""
        return next((estimate for estimate in self.estimates if estimate.symbol == name), None)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)


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
        name: what is limited, e.g. ``gamma``.
        formula: the limit in symbols.
        limit: the limit's value.
        value: what is to stay at or below the limit.

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
        """Whether the value is within the limit (an array of answers on a grid)."""
        return np.less_equal(self.value, self.limit)

    @property
    def margin(self) -> Any:
        """How many times larger the value could be: above 1 where the condition holds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(self.limit, self.value)


@dataclass(frozen=True)
class Source(Value):
    """Where a bound comes from and how it departs from print.

    Attributes:
        paper: its title.
        locator: where it states the theorem.
        version: which of the theorem.
        deviations: from print.
        sound: whether this version holds as it stands: false of a print that had to be corrected.
    """

    paper: str
    locator: str
    version: Version
    deviations: tuple[str, ...] = ()
    sound: bool = True


@dataclass(frozen=True)
class Bound(Value):
    """An upper bound on a quantity: terms that add up, conditions that must hold, and its source.

    Attributes:
        quantity: what is bounded, in symbols.
        terms: the summands.
        conditions: what must hold for the bound to be true.
        source: theorem, version and deviations.
        gamma_max: the largest gamma that meets every condition, all else (eta too) as given.
        gamma_eta_max: the limit on the product gamma * eta by itself; infinite where there is none.
        kinds: the kind of each constant that was put in; one that is neither ``exact`` nor ``upper`` (for mu:
            ``lower``) makes the bound a plug-in.
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
class Round(Value):
    """What one round recorded.

    Attributes:
        round: r, counted from 0; the model is the global model before the round.
        loss: f at the global model.
        grad2: squared norm of f's gradient there.
        spread: mean squared distance of the participants' models, after their local steps, from their mean;
            missing for the model after the last round.
        deviation2: squared distance between the participants' averaged gradient, each at its own model, and
            their averaged gradient at the mean model (Proposition 5.2).
        accuracy: of the global model on the test data, from 0 to 1, where there is such.
        zeta2: mean squared distance of the participants' gradients at their mean model from the mean of them.
        L_tilde_ratio: the largest ratio of a participant's gradients, between its own model and the mean model, to the
            distance of the two: a lower bound of L_tilde (of many participants, as many as fit in memory).
        L_g_ratio: the same ratio of f's gradients between the global model and the mean model, where all take part: a
            lower bound of L_g.
        looked: where local steps adapt themselves, after how many steps of this round f was looked at, the last being
            the round's own number of them.
        path: what f would be had the round ended there; infinite where it is not finite.
        taken: after how many of them the round was taken to have ended: all, or fewer where f was lower there; 0 where
            the round was undone.
        elapsed: seconds of the cost model before the round.
        why: the reason for the number of local steps that follow, where it is another.
    """

    round: int
    loss: float
    grad2: float
    spread: float | None = None
    deviation2: float | None = None
    accuracy: float | None = None
    zeta2: float | None = None
    L_tilde_ratio: float | None = None
    L_g_ratio: float | None = None
    looked: tuple[int, ...] | None = None
    path: tuple[float, ...] | None = None
    taken: int | None = None
    elapsed: float | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as an object; what was not looked at has no entry."""
        entries = super().to_json()
        always = ("spread", "deviation2")
        return {name: value for name, value in entries.items() if value is not None or name in always}

    @property
    def L_h_ratio(self) -> float | None:  # noqa: N802
        """sqrt(deviation2 / spread): a lower bound of L_h where all take part; missing where the local models agree.

        Of M of N workers it is no such bound. With the others at the participants' mean model, L_h bounds M/N of the
        deviation by the root of M/N of the spread, so that the ratio may be sqrt(N/M) L_h, and more where a worker is
        drawn twice.
        """
        if self.deviation2 is None or not self.spread:
            return None
        return float((self.deviation2 / self.spread) ** 0.5)


@dataclass(frozen=True, eq=False)
class Trace(Value):
    """A run: one record a round, the final model, and the settings that made it.

    Attributes:
        settings: what was asked, enough to run it again.
        status: ``finished``; ``target`` where a target was reached first; ``diverged`` where the loss was no
            longer finite; ``stopped`` where the run was interrupted.
        stopped_at: the round at which it ended.
        rounds: the records.
        model: the last global model; where the run diverged that of the last record, whose loss was finite.
        seconds: wall time of each record since the run began; not part of equality.
    """

    settings: Mapping[str, Any]
    status: Status
    stopped_at: int
    rounds: tuple[Round, ...]
    model: npt.NDArray[np.float64]
    seconds: tuple[float, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare everything but the wall times, bit by bit."""
        return (
            isinstance(other, Trace)
            and (self.settings, self.status, self.stopped_at, self.rounds)
            == (other.settings, other.status, other.stopped_at, other.rounds)
            and np.array_equal(self.model, other.model)
        )

    def __hash__(self) -> int:
        return hash((self.status, self.stopped_at, self.rounds))

    @property
    def losses(self) -> Array:
        """The recorded losses as an array."""
        return np.array([record.loss for record in self.rounds])

    @property
    def grad2(self) -> Array:
        """The recorded squared gradient norms as an array."""
        return np.array([record.grad2 for record in self.rounds])

    @property
    def accuracies(self) -> Array:
        """The recorded test accuracies as an array; NaN where there is none."""
        return np.array([np.nan if record.accuracy is None else record.accuracy for record in self.rounds])
