"""The parameters of all algorithms, as an experiment and the command offer them: read from signatures and docstrings.

An algorithm with a new parameter says what it is in its own docstring, and nowhere else.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from fedgauge.algorithms import ALGORITHMS, with_optimiser, with_schedules
from fedgauge.algorithms.local_optimisers import OPTIMISERS, make_optimiser
from fedgauge.base.codec import alternatives

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_MARKUP = re.compile(r":\w+:(?=`)|`")


class Parameter(NamedTuple):
    """A parameter of one or more algorithms.

    Attributes:
        kind: the type of its value.
        help: what it means, for whom, and its default.
    """

    kind: type
    help: str


class _Use(NamedTuple):
    """A parameter as one function has it."""

    owner: str
    kind: type
    text: str
    default: Any


@cache
def parameters() -> dict[str, Parameter]:
    """All parameters by name, those of the algorithms first.

    >>> parameters()["beta2"].help
    'Decay of the second moment (fedadam); how slowly the second moment moves (fedyogi) [default: 0.99].'
    """
    algorithms, general = _uses(ALGORITHMS), _uses({"": with_optimiser})
    for functions in ({"": make_optimiser}, OPTIMISERS, {"": with_schedules}):
        for name, uses in _uses(functions).items():
            general.setdefault(name, uses)
    del general["algorithm"]
    order = [*(name for name in algorithms if name not in general), *general]
    return {name: _described(algorithms.get(name, []), general.get(name, [])) for name in order}


def _uses(functions: Any) -> dict[str, list[_Use]]:
    uses: dict[str, list[_Use]] = {}
    for owner, function in functions.items():
        for name, use in _uses_in(owner, function):
            uses.setdefault(name, []).append(use)
    return uses


def _uses_in(owner: str, function: Callable[..., Any]) -> Iterator[tuple[str, _Use]]:
    hints, texts = get_type_hints(function), dict(_ARGUMENT.findall(inspect.getdoc(function) or ""))
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is not inspect.Parameter.VAR_KEYWORD:
            kinds = [kind for kind in alternatives(hints[name]) if kind in (bool, int, float, str)]
            words = " ".join(_MARKUP.sub("", texts.get(name, "")).split())
            # What follows a semicolon is a remark for readers of the formula.
            yield name, _Use(owner, kinds[0] if kinds else str, words.split(";")[0].rstrip("."), each.default)


def _described(algorithms: list[_Use], general: list[_Use]) -> Parameter:
    """One text for a parameter, which several functions may describe in their own words."""
    uses = (general or algorithms)[:1] if len(algorithms) == len(ALGORITHMS) else general or algorithms
    owners: dict[str, list[str]] = {}
    for use in uses:
        owners.setdefault(use.text, []).append(use.owner)
    everyone = len(algorithms) == len(ALGORITHMS)
    parts = [text if everyone or who == [""] else f"{text} ({', '.join(who)})" for text, who in owners.items()]
    words = "; ".join(parts)
    return Parameter(uses[0].kind, f"{words[:1].upper()}{words[1:]}{_defaults([*general, *algorithms])}.")


def _defaults(uses: list[_Use]) -> str:
    """The most common default, and whose are others; nothing where some have none."""
    if any(use.default in (None, inspect.Parameter.empty) for use in uses):
        return ""
    shown = {use.owner: _shown(use.default) for use in uses}
    usual, _ = Counter(shown.values()).most_common(1)[0]
    others: dict[str, list[str]] = {}
    for owner, value in shown.items():
        if value != usual:
            others.setdefault(value, []).append(owner)
    exceptions = [f"{value} for {', '.join(who)}" for value, who in others.items()]
    return f" [default: {'; '.join([usual, *exceptions])}]"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
