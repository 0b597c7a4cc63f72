"""What the theorems share: the record of a theorem and the pieces that bounds are built from.

A theorem's file defines one function from values to a :class:`Statement`. Everything here broadcasts: a value may be a
number or an array, and a bound is then evaluated at all points at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.federation.participation import Sampling
from fedgauge.theory.inputs import (
    Counterexample,
    GlobalRate,
    Objectives,
    Quantity,
    RateShape,
    TermFacts,
    Values,
    check_kinds,
    check_values,
)
from fedgauge.values import Bound, Condition, Kind, Number, Source, Term, Version

PAPER = "A New Theoretical Perspective on Data Heterogeneity in Federated Optimization (ICML 2024)"
AS_PRINTED = "The printed constants and conditions are right; this is the same formula."
IN_PLACE = "The corrected formula with L_tilde in place of L_g and L_h, in the conditions as well."


Function = TypeVar("Function", bound=Callable[..., Any])


def recordable(function: Function) -> Function:
    """Let an argument that records formulas instead of numbers handle the call.

    The explorer's page gets its formulas by evaluating them on such arguments. That cannot follow a loop whose length
    depends on a value, so a function with such a loop is recorded by its name.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if hasattr(argument, "record_call"):
                return argument.record_call(function.__name__, *arguments)
        return function(*arguments)

    return cast(Function, call)


class Factor(NamedTuple):
    """A factor of a term that is not a single symbol: how it is written, its value, and the symbols in it."""

    text: str
    value: Floats
    symbols: tuple[str, ...]


class Statement(NamedTuple):
    """What a theorem says at some values: the terms of its bound and its conditions."""

    terms: tuple[Term, ...]
    conditions: tuple[Condition, ...]


def over(top: Number, bottom: Number) -> Floats:
    """Divide, where dividing by zero means that there is no limit.

    >>> over(1.0, np.array([2.0, 0.0])).tolist()
    [0.5, inf]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(np.equal(bottom, 0), np.inf, np.divide(top, bottom))


def largest_factor(limit: Number, other: Number) -> Floats:
    """Return the largest number whose product with ``other``, as rounded, is at most ``limit``.

    >>> float(largest_factor(0.3, 3.0)) * 3.0 <= 0.3
    True
    """
    factor = over(limit, other)
    with np.errstate(invalid="ignore", over="ignore"):
        # The quotient is rounded once, so that one step down is enough.
        return np.where(factor * other > limit, np.nextafter(factor, 0.0), factor)


def _power(base: Floats, exponent: int) -> Floats:
    result = base
    for _ in range(exponent - 1):
        result = result * base
    return result


def _product(v: Values, text: str, factors: Mapping[str, Factor]) -> tuple[list[Floats], list[str], list[str]]:
    values: list[Floats] = []
    texts: list[str] = []
    symbols: list[str] = []
    for token in text.split():
        name, _, exponent = token.partition("^")
        if name in factors:
            factor = factors[name]
            value, shown, used = factor.value, token.replace(name, factor.text), factor.symbols
        elif name == "(I-1)":
            value, shown, used = v["I"] - 1, token, ("I",)
        else:
            value, shown, used = v[name], token, (name,)
        values.append(_power(value, int(exponent or 1)))
        texts.append(shown)
        symbols.extend(used)
    return values, texts, symbols


def term(
    v: Values,
    name: str,
    constant: float | Fraction,
    top: str,
    bottom: str = "",
    factors: Mapping[str, Factor] | None = None,
) -> Term:
    """Make a term from one text, which gives both the formula shown and the value, so that they cannot differ.

    Args:
        v: the values.
        name: what the term is.
        constant: the number in front.
        top: symbols with whole powers, and ``(I-1)``, separated by spaces.
        bottom: the same for the denominator.
        factors: the factors behind names in either text that are not symbols.

    >>> made = term({"gamma": np.float64(0.5), "I": np.float64(3)}, "drift", 8, "gamma^2 (I-1)")
    >>> made.formula, float(made.value)
    ('8 gamma^2 (I-1)', 4.0)
    """
    values, texts, symbols = _product(v, top, factors or {})
    ratio = isinstance(constant, Fraction) and constant.denominator > 1
    shown = f"({constant})" if ratio else f"{float(constant):g}"
    formula = " ".join(texts if constant == 1 else [shown, *texts])
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.asarray(float(constant), dtype=float)
        for factor in values:
            value = value * factor
        if np.isnan(value).any():
            # Nothing times an overflow or an infinite constant is nothing.
            zero = functools.reduce(np.logical_or, (np.equal(factor, 0) for factor in values))
            value = np.where(zero, 0.0, value)
    if bottom:
        below, below_texts, below_symbols = _product(v, bottom, factors or {})
        formula += f"/{below_texts[0]}" if len(below) == 1 else f"/({' '.join(below_texts)})"
        symbols += below_symbols
        divisor = below[0]
        for factor in below[1:]:
            divisor = divisor * factor
        value = value / divisor
    return Term(name, formula, value, tuple(dict.fromkeys(symbols)))


def at_most(v: Values, name: str, formula: str, limit: Number) -> Condition:
    """Make the condition that ``gamma`` or ``gamma eta`` stays at or below a limit."""
    return Condition(name, formula, limit, v["gamma"] if name == "gamma" else v["gamma"] * v["eta"])


def smoothness_limit(v: Values) -> Condition:
    """Make the condition that Lemma B.2 needs: gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I)."""
    bottom = np.sqrt(6 * (v["L_h"] * v["L_h"] + v["L_g"] * v["L_g"])) * v["I"]
    return at_most(v, "gamma", "1/(sqrt(6 (L_h^2 + L_g^2)) I)", over(1.0, bottom))


def equals_one(v: Values) -> Condition:
    """Make the condition eta = 1; any other eta is shown as inadmissible, whatever gamma is."""
    return Condition("|eta - 1|", "0", 0.0, np.abs(v["eta"] - 1))


def ordered(v: Values, small: str, large: str) -> Condition:
    """Make the condition ``small <= large`` on constants whose definitions imply it, forgiving rounding."""
    least, most = v[small], v[large]
    return Condition(small, large, most, np.where(least <= most * (1 + 1e-9), np.minimum(least, most), least))


def descent(v: Values, rate: str, steps: str, batch: str) -> tuple[tuple[Term, Term], Condition]:
    """Make the terms and the condition of plain SGD: a step of length x descends by x (1 - x L_g/2) |grad f|^2.

    Args:
        v: the values.
        rate: the length of a step, ``gamma`` or ``gamma eta``.
        steps: that length times the number of steps.
        batch: the number of gradients in a step.

    >>> values = {name: np.asarray(1.0) for name in ("F", "gamma", "R", "I", "N", "sigma2", "L_g")}
    >>> [float(made.value) for made in descent(values, "gamma", "gamma R I", "N")[0]]
    [2.0, 1.0]
    """
    x = v["gamma"] if rate == "gamma" else v["gamma"] * v["eta"]
    left = 1 - x * v["L_g"] / 2
    names = (*rate.split(), "L_g")
    kept = {"kept": Factor(f"(1 - {rate} L_g/2)", np.where(left > 0, left, 1.0), names)}
    made = (
        term(v, "initial gap", 1, "F", f"{steps} kept", kept),
        term(v, "gradient noise", Fraction(1, 2), f"{rate} L_g sigma2", f"{batch} kept", kept),
    )
    # At twice 1/L_g a step may land as far on the other side, and there is no bound.
    first, second = (Term(t.name, t.formula, np.where(left > 0, t.value, np.inf), t.symbols) for t in made)
    return (first, second), at_most(v, rate, "2/L_g", over(2 * (1 - 1e-13), v["L_g"]))


def _plain(value: Number) -> Number:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def largest_gamma(conditions: Iterable[Condition], eta: Number) -> tuple[Number, Number]:
    """Return the largest gamma that the conditions admit at this eta, and their limit on the product gamma eta."""
    gamma: Number = np.inf
    product: Number = np.inf
    others: Any = True
    for condition in conditions:
        if condition.name == "gamma":
            gamma = np.minimum(gamma, condition.limit)
        elif condition.name == "gamma eta":
            product = np.minimum(product, condition.limit)
        else:
            others = np.logical_and(others, condition.holds)
    return np.where(others, np.minimum(gamma, largest_factor(product, eta)), 0.0), product


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """A theorem: what it needs, the versions it comes in, what it says at your values, and the facts about it.

    Attributes:
        name: how it is called, e.g. ``nonconvex``.
        title: one phrase for a list.
        locator: where the paper states it.
        needs: the symbols that must be given (for ``prior``, L_tilde stands in for L_g and L_h).
        versions: for each version, how it departs from print.
        state: from version and values to the statement; it never sees ``prior``.
        algorithm: the algorithm that it is about, one of ``fedgauge.algorithms.ALGORITHMS``.
        quantity: what it bounds.
        terms: every term that some version has, with its meaning and colour.
        optional: symbols that may be given, with their defaults; None where another symbol decides.
        quantities: what a version bounds instead, where versions differ.
        sampling: who takes part in a round.
        objectives: what the workers' objectives must be.
        eta: whether the global rate is free, must be one, or only counts in the product gamma eta.
        rate_shape: how the bound depends on the rate x and on R, which is how it is searched: ``powers`` for
            A/(x R) + a + b x + c x^2; ``geometric`` for A/(q^-R - 1) + E and ``inverse`` for A/R + E, where only A, q
            and E depend on x; ``root`` where ``rounds_to`` says how many rounds it takes; None where it has no such
            form, so that it cannot plan.
        rate_shapes: the shape of versions that have another one.
        rounds_to: from version, values and a target to the rounds, not rounded up, after which the bound is the target.
        contraction: from version and values to 1 - q, where the distance to x* shrinks by a factor q per round.
        zeta_at: whether the proof takes zeta at the local models or only at the global ones.
        constants_from: for a version, the constant that it takes for a symbol where that is another one.
        counterexample: quadratics on which the printed version fails.
        star_is_default: whether ``star``, where there is one, is never worse than the other versions.
        step_limits: where the conditions limit how far a run goes: from all values to the largest change of an entry
            of the global model in a round, and of a local model within one.
    """

    name: str
    title: str
    locator: str
    needs: tuple[str, ...]
    versions: Mapping[Version, tuple[str, ...]]
    state: Callable[[Version, Values], Statement]
    algorithm: str
    quantity: Quantity
    terms: tuple[TermFacts, ...]
    optional: Mapping[str, float | None] = field(default_factory=dict)
    quantities: Mapping[Version, Quantity] = field(default_factory=dict)
    sampling: Sampling = "full"
    objectives: Objectives = "smooth"
    eta: GlobalRate = "free"
    rate_shape: RateShape | None = None
    rate_shapes: Mapping[Version, RateShape] = field(default_factory=dict)
    rounds_to: Callable[[Version, Values, float], Floats] | None = None
    contraction: Callable[[Version, Values], Floats] | None = None
    zeta_at: Literal["local models", "global models"] = "local models"
    constants_from: Mapping[Version, Mapping[str, str]] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    star_is_default: bool = True
    step_limits: Callable[[Mapping[str, Any]], tuple[Any, Any]] | None = None

    @property
    def print_is_right(self) -> bool:
        """Whether the printed version needs no correction."""
        return self.versions["corrected"] == (AS_PRINTED,)

    @property
    def default(self) -> Version:
        """The version that is meant where none is named: ``star`` where it is never worse, otherwise ``corrected``."""
        return "star" if "star" in self.versions and self.star_is_default else "corrected"

    def shape_of(self, version: Version) -> RateShape | None:
        """Return how the bound of a version depends on the rate and on the rounds."""
        return self.rate_shapes.get(version, self.rate_shape)

    @property
    def gap(self) -> str:
        """The symbol of what the start leaves to be gained: F, or d0 where the distance to x* is meant."""
        return "d0" if "d0" in self.needs else "F"

    def quantity_of(self, version: Version = "corrected") -> Quantity:
        """Return what a version bounds."""
        return self.quantities.get(version, self.quantity)

    def term_facts(self, name: str) -> TermFacts:
        """Return the facts about one of the terms."""
        return next(facts for facts in self.terms if facts.name == name)

    def needed(self, version: Version = "corrected") -> tuple[str, ...]:
        """Return the symbols that this version needs."""
        if version != "prior":
            return self.needs
        names = ("L_tilde" if name in ("L_g", "L_h") else name for name in self.needs)
        return tuple(dict.fromkeys(names))

    def travel(self, values: Mapping[str, Any]) -> float | None:
        """Return how far any entry of a model can get from that of the first model in R rounds; None where unknown.

        This holds as long as the constants hold in the run, so that a region that is larger is never left.
        """
        given = {name: default for name, default in self.optional.items() if default is not None} | dict(values)
        if self.step_limits is None or not {*self.needs} <= {*given}:
            return None
        of_round, within = self.step_limits(given)
        return float(given["R"] * of_round + within) * (1 + 1e-12)  # for rounding, which is a few units of 1e-16

    def prepare(self, version: Version, values: Mapping[str, Any]) -> Values:
        """Return the values that this version uses, checked, or say what is missing or wrong."""
        if version not in self.versions:
            raise InputError(
                f"{self.name} ({self.locator}) has no version {version!r}; choose one of {', '.join(self.versions)}."
            )
        v = check_values(values)
        missing = [name for name in self.needed(version) if name not in v]
        if missing:
            spare = f" and may have {', '.join(self.optional)}" if self.optional else ""
            raise InputError(
                f"{self.name} ({self.locator}, {version}) lacks {', '.join(missing)}; "
                f"it needs {', '.join(self.needed(version))}{spare}."
            )
        if self.sampling != "full" and np.any(v["N"] != np.floor(v["N"])):
            raise InputError(
                f"N must be a whole number for {self.name}, not {float(np.ravel(v['N'])[0]):g}: drawing workers at"
                " random and weighing what they send adds a variance that the theorem does not have; let all workers"
                " take part."
            )
        keep = (*self.needed(version), *self.optional)
        v = {name: array for name, array in v.items() if name in keep}
        for name, default in self.optional.items():
            if name not in v and default is not None:
                v[name] = np.asarray(default, dtype=float)
        return v

    def statement(self, version: Version, v: Values) -> Statement:
        """Return what a version says at values that :meth:`prepare` has checked."""
        if version != "prior":
            return self.state(version, v)
        replaced: Values = {name: v["L_tilde"] for name in ("L_g", "L_h") if name in self.needs}
        if "L_h_rms" in self.optional:
            replaced["L_h_rms"] = 2 * v["L_tilde"]  # |A_i - A| <= |A_i| + |A|, and no better in general
        return _rename(self.state("corrected", {**v, **replaced}))

    def evaluate(self, version: Version | None = None, kinds: Mapping[str, Kind] | None = None, **values: Any) -> Bound:
        """Evaluate the theorem; see :func:`fedgauge.theory.evaluate`."""
        version = version or self.default
        v = self.prepare(version, values)
        if version == "prior":
            v.pop("L_h_rms", None)  # L_tilde replaces it, so its kind does not matter
        statement = self.statement(version, v)
        gamma_max, gamma_eta_max = largest_gamma(statement.conditions, v.get("eta", np.asarray(1.0)))
        return Bound(
            quantity=self.quantity_of(version).text,
            terms=tuple(Term(t.name, t.formula, _plain(t.value), t.symbols) for t in statement.terms),
            conditions=tuple(
                Condition(c.name, c.formula, _plain(c.limit), _plain(c.value)) for c in statement.conditions
            ),
            source=Source(
                PAPER, self.locator, version, self.versions[version], version != "printed" or self.print_is_right
            ),
            gamma_max=_plain(gamma_max),
            gamma_eta_max=_plain(gamma_eta_max),
            kinds=check_kinds(kinds or {}, v),
        )


def _rename(statement: Statement) -> Statement:
    def text(formula: str) -> str:
        return re.sub(r"\bL_[gh]\b", "L_tilde", formula.replace("L_h_rms", "(2 L_tilde)"))

    def rename(part: Term) -> Term:
        symbols = ("L_tilde" if name in ("L_g", "L_h", "L_h_rms") else name for name in part.symbols)
        return Term(part.name, text(part.formula), part.value, tuple(dict.fromkeys(symbols)))

    conditions = tuple(
        Condition(c.name, text(c.formula), c.limit, c.value)
        for c in statement.conditions
        if c.name != "L_g"  # L_tilde <= L_tilde
    )
    return Statement(tuple(map(rename, statement.terms)), conditions)
