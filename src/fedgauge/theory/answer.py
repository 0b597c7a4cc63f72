"""A theorem's answer at some numbers, ready to be shown: shares, the largest term, the binding condition, a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedgauge.theory import find
from fedgauge.values import Bound, Condition, Kind, Term, Value, Version, is_safe
from fedgauge.values.display import Displayed, article

Standing = Literal["certified", "as printed", "plug-in", "not certified", "contradicted"]
_RATES = ("gamma", "gamma eta")


@dataclass(frozen=True)
class Other(Value):
    """What one version of the theorem says at the same numbers.

    Attributes:
        total: the bound; None where symbols are missing.
        admissible: whether its conditions hold.
        gamma_max: the largest gamma that they admit.
        missing: the symbols that it needs and that were not given.
    """

    total: float | None = None
    admissible: bool | None = None
    gamma_max: float | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class TheoremAnswer(Value, Displayed):
    """A bound at single numbers, with what a reader wants to know about it.

    Attributes:
        theorem: its name.
        bound: the version that was chosen.
        values: every number that entered, defaults included.
        versions: all versions of the theorem at the same numbers.
        chosen: the symbols that a search chose.
        notes: why constants count for less here than where they were found.
        contradictions: what happened in a run and could not have if the constants were right, a sentence each.
    """

    theorem: str
    bound: Bound
    values: Mapping[str, float]
    versions: Mapping[str, Other]
    chosen: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    @property
    def shares(self) -> tuple[float, ...]:
        """Each term's share of the total; infinite terms share it among themselves."""
        terms = np.array([term.value for term in self.bound.terms], dtype=float)
        weights = np.isinf(terms).astype(float) if np.isinf(terms).any() else terms
        total = weights.sum()
        return tuple((weights / total if total > 0 else weights).tolist())

    @property
    def dominant(self) -> Term:
        """The largest term."""
        return self.bound.terms[int(np.argmax(self.shares))]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.bound.conditions if not condition.holds)

    @property
    def binding(self) -> Condition:
        """The condition on the rates that is nearest to its limit, or furthest beyond it."""
        rates = [condition for condition in self.bound.conditions if condition.name in _RATES]
        return min(rates, key=lambda condition: float(condition.margin))

    @property
    def uncertain(self) -> dict[str, Kind]:
        """The constants that may be on the unsafe side, with their kind."""
        return {name: kind for name, kind in self.bound.kinds.items() if not is_safe(name, kind)}

    @property
    def doubts(self) -> str:
        """The uncertain constants by their kind, as in: sigma2 is a sample value and L_g and L_h are lower values."""
        said = []
        for kind in dict.fromkeys(self.uncertain.values()):
            *others, last = [name for name, its_kind in self.uncertain.items() if its_kind == kind]
            whole = f"{', '.join(others)} and {last} are" if others else f"{last} is {article(kind)}"
            said.append(f"{whole} {kind} value{'s' if others else ''}")
        return " and ".join(said)

    @property
    def standing(self) -> Standing:
        """How far the bound can be trusted."""
        if self.contradictions:
            return "contradicted"
        if self.failed:
            return "not certified"
        if self.uncertain:
            return "plug-in"
        return "certified" if self.bound.source.sound else "as printed"

    @property
    def verdict(self) -> str:
        """One sentence: certified, plug-in or neither and why, which term dominates and which condition binds."""
        part = f"{max(self.shares):.0%} of the bound is the {self.dominant.name}"
        size = part if self.bound.total > 0 else "every term is 0"
        if self.failed and np.isinf(self.bound.total):
            size = "there is no bound at these values"
        standing = self.standing
        if standing == "contradicted":
            return " ".join(self.contradictions)
        if standing == "not certified":
            reasons = " and ".join(_say_failed(condition) for condition in self.failed)
            return f"Not certified: {reasons}, so the theorem does not apply; {size}."
        if standing == "plug-in":
            start = f"Plug-in: every condition holds, but {self.doubts}, so that the bound may be too small"
        elif standing == "as printed":
            start = "As printed only: the printed conditions hold, but the printed formula had to be corrected"
        else:
            start = "Certified: every condition holds and every constant is exact or safe"
        return f"{start}; {size}; {self.room}."

    @property
    def room(self) -> str:
        """How far gamma is from its limit, in words."""
        times = float(self.bound.gamma_max) / self.values["gamma"]
        limit = f"{self.binding.name} <= {self.binding.formula}"
        if np.isinf(times):
            return "no condition limits gamma"
        if times < 1.005:
            return f"gamma is at the limit of {limit}"
        return f"gamma could be {_digits(times)} times as large before {limit} fails"

    def to_json(self) -> dict[str, Any]:
        """Return the answer flat, as the command line prints it."""
        bound = self.bound
        return {
            "theorem": self.theorem,
            "version": bound.source.version,
            "source": bound.source.to_json(),
            "quantity": bound.quantity,
            "total": float(bound.total),
            "terms": [
                {"name": term.name, "formula": term.formula, "value": term.value, "share": share}
                for term, share in zip(bound.terms, self.shares, strict=True)
            ],
            "conditions": [_condition(condition) for condition in bound.conditions],
            "gamma_max": bound.gamma_max,
            "gamma_eta_max": bound.gamma_eta_max,
            "admissible": bool(bound.admissible),
            "certified": self.standing == "certified",
            "dominant": self.dominant.name,
            "binding": f"{self.binding.name} <= {self.binding.formula}",
            "verdict": self.verdict,
            "values": dict(self.values),
            "kinds": dict(bound.kinds),
            "chosen": list(self.chosen),
            "notes": list(self.notes),
            "contradictions": list(self.contradictions),
            "versions": {version: other.to_json() for version, other in self.versions.items()},
        }


def _condition(condition: Condition) -> dict[str, Any]:
    margin = float(condition.margin)
    return {
        "name": condition.name,
        "formula": condition.formula,
        "limit": condition.limit,
        "value": condition.value,
        "holds": bool(condition.holds),
        "margin": None if np.isnan(margin) else margin,  # 0 <= 0 holds without any margin
    }


def _digits(number: float) -> str:
    return f"{number:.3g}"


def _say_failed(condition: Condition) -> str:
    name, value, limit = condition.name, float(condition.value), float(condition.limit)
    if limit > 0:
        much = f"is {_digits(value / limit)} times its limit {condition.formula}"
    else:
        much = "must be 0" if condition.formula == "0" else f"exceeds its limit {condition.formula}, which is 0"
    return f"{name} = {_digits(value)} {much}"


def _other(name: str, version: Version, values: Mapping[str, Any]) -> Other:
    theorem = find(name)
    missing = tuple(symbol for symbol in theorem.needed(version) if symbol not in values)
    if missing:
        return Other(missing=missing)
    bound = theorem.evaluate(version, **values)
    return Other(float(bound.total), bool(bound.admissible), float(bound.gamma_max))


def bound(
    name: str,
    version: Version | None = None,
    kinds: Mapping[str, Kind] | None = None,
    chosen: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    **values: float,
) -> TheoremAnswer:
    """Evaluate a theorem at single numbers, together with its other versions.

    Args:
        name: the theorem.
        version: the version to show in full; by default ``star`` where there is one, otherwise ``corrected``.
        kinds: the kind of each constant; one that may be on the unsafe side makes the bound a plug-in.
        chosen: the symbols that a search chose.
        notes: why constants count for less here than where they were found.
        **values: the theorem's symbols.

    >>> values = dict(F=1, I=4, R=1000, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5, gamma=0.0134)
    >>> answer = bound("nonconvex", kinds={"L_h": "lower"}, **values)
    >>> answer.dominant.name, answer.versions["prior"].missing
    ('initial gap', ('L_tilde',))
    >>> print(answer.verdict)
    Plug-in: every condition holds, but L_h is a lower value, so that the bound may be too small; 91% of the bound is
    the initial gap; gamma could be 23.6 times as large before gamma <= ((1 + 2/eta)^(1/I) - 1)/L_g fails.
    """
    theorem = find(name)
    version = version or theorem.default
    evaluated = theorem.evaluate(version, kinds, **values)
    used = {symbol: value.item() for symbol, value in theorem.prepare(version, values).items()}
    versions: dict[str, Other] = {other: _other(name, other, values) for other in theorem.versions}
    return TheoremAnswer(name, evaluated, used, versions, chosen, notes)
