"""What a result says, without how it is shown: the terminal, pages, notebooks and pictures draw the same view."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedgauge.base.user_code import RESULTS, plugins
from fedgauge.show.charts import Picture
from fedgauge.show.web.writing import distance, percent
from fedgauge.values import Bound, Condition, Estimate


def number(value: float | None) -> str:
    """Four significant digits, or a dash for what does not exist."""
    return "–" if value is None else f"{value:.4g}"


def brief_name(name: str) -> str:
    """Both ends of a long name, by which layers and files are known.

    >>> brief_name("transformer.h.11.attention.query.weight")
    'transformer.h.11…tion.query.weight'
    """
    return name if len(name) <= 34 else f"{name[:16]}…{name[-17:]}"


class Written(NamedTuple):
    """A number with the text that stands for it."""

    value: float
    text: str

    def __str__(self) -> str:
        return self.text


def counted_share(value: float | None) -> Written | None:
    """A share of examples, to a hundredth of a per cent."""
    return None if value is None else Written(value, f"{value:.2%}")


@dataclass(frozen=True)
class Share:
    """A share of a whole, with the text that stands for it if that is more than a percentage."""

    value: float
    text: str = ""

    def __str__(self) -> str:
        return self.text or percent(self.value)


@dataclass(frozen=True)
class IntervalCell:
    """The two ends of an interval, with a unit; nothing where they are equal."""

    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        return "" if self.low == self.high else f"{number(self.low)} to {number(self.high)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Named:
    """A cell that is a word or a formula in plain text, and more than that on a page."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SymbolCell(Named):
    """A constant, by its symbol, and how it was measured."""

    method: str = ""


@dataclass(frozen=True)
class Kind(Named):
    """The kind of an estimate, and whether a bound may rest on it."""

    certain: bool


class Formula(Named):
    """A formula, as theorems write it."""


class StandingCell(Named):
    """What a bound is worth."""


@dataclass(frozen=True)
class Held:
    """Whether a condition holds."""

    holds: bool

    def __str__(self) -> str:
        return "✓" if self.holds else "✗"


Cell = str | float | Written | Share | IntervalCell | Named | Held | None


@dataclass(frozen=True)
class Table:
    """A table, whose first column names its rows.

    Attributes:
        heads: what the columns are.
        rows: their cells.
        title: what the table is about.
        note: what is left out, or how to read it.
        detail: whether only those want it who look closer: pages fold it, and the terminal leaves it out.
        chosen: the number of the row that was chosen.
        splits: whether columns that do not fit side by side may go into further tables.
        brief: whether its cells are so short that a phone shows it as it is.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    note: str = ""
    detail: bool = False
    chosen: int | None = None
    splits: bool = False
    brief: bool = False


class Deferred(Sequence[Picture]):
    """Charts of a long run, which are made only when they are drawn: a terminal shows none of them."""

    def __init__(self, make: Callable[[], Sequence[Picture]]) -> None:
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return len(self._make())

    def __getitem__(self, place: Any) -> Any:
        return self._make()[place]


@dataclass(frozen=True)
class View:
    """What a result says.

    Attributes:
        sentences: what it says, the answer first.
        title: what it is.
        facts: its main numbers, by name.
        tables: the rest of its numbers.
        charts: what there is to see.
        notes: what a reader should know, one sentence each.
        limits: the same, of the answer itself: a page shows it beside the answer, and all else before the notes.
        standing: what a bound is worth, or whether a goal was ``reached``.
        columns: how many charts stand side by side in a picture.
    """

    sentences: Sequence[str] = ()
    title: str = ""
    facts: Mapping[str, Cell] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    charts: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    limits: Sequence[str] = ()
    standing: str = ""
    columns: int = 3


@functools.singledispatch
def view(result: object) -> View:
    """What a result says, and what there is to see of it."""
    plugins(RESULTS)  # what other distributions add comes with its views
    added = view.dispatch(type(result))
    return View((repr(result),)) if added is view.dispatch(object) else added(result)


# -- tables that several kinds of result have ------------------------------------------------------------------------


def estimates_table(constants: Iterable[Estimate], title: str = "", detail: bool = False) -> Table:
    """A table of constants."""
    rows = [
        (SymbolCell(e.symbol, e.method), e.value, IntervalCell(e.low, e.high), Kind(e.kind, e.certain))
        for e in constants
    ]
    return Table(("constant", "value", "interval", "kind"), rows, title, detail=detail)


def conditions_table(conditions: Sequence[Condition], title: str = "Conditions") -> Table:
    """Each condition with its value, its limit and how far apart they are."""
    rows = [
        (
            Held(bool(each.holds)),
            float(each.value),
            float(each.limit),
            distance(float(each.limit), float(each.value)),
            Formula(f"{each.name} <= {each.formula}"),
        )
        for each in conditions
    ]
    return Table(("", "value", "limit", "margin", "condition"), rows, title)


def terms_table(bound: Bound, shares: Sequence[float]) -> Table:
    """Each term of a bound with its share and its formula; the largest is highlighted."""
    pairs = zip(bound.terms, shares, strict=True)
    rows = [(term.name, float(term.value), Share(share), Formula(term.formula)) for term, share in pairs]
    largest = max(range(len(shares)), key=shares.__getitem__, default=None)
    return Table(("term", "value", "share", "formula"), rows, "Terms", chosen=largest)
