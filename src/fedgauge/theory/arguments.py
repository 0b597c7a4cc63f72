"""The numbers for a theorem: from a JSON file and from NAME=VALUE arguments, under the theorems' own names.

A file is an object of ``name: number`` or ``name: {"value": number, "kind": kind}``, as ``fedgauge theory constants
--json`` prints it, or what ``fedgauge measure`` writes. A plain number counts as exact: you vouch for it. What a
command wrote says in its ``scope`` which federation and first model it belongs to, and counts as assumed for others.
Four symbols are translated unless the theorems' own name is given too: sigma and zeta (or zeta_rms) are squared to
sigma2 and zeta2, and L_h_paper, which is never below L_h_rms, stands for it. What the theorem does not use is
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedgauge.base.errors import InputError, nearest, non_negative
from fedgauge.base.files import read_json_input
from fedgauge.base.symbols import SIGNED, SYMBOLS
from fedgauge.theory.base import Theorem
from fedgauge.theory.inputs import ACCEPTED, check_kinds, check_values
from fedgauge.values import SETTINGS, Constants, Estimate, Kind, Scope, Subject, is_safe
from fedgauge.values.results import AlteredError, check_seal

# In this order: zeta_rms, which the proofs use, gives way to zeta where a file has both.
_SPELLED: dict[str, str] = {"sigma": "sigma2", "zeta_rms": "zeta2", "zeta": "zeta2", "L_h_paper": "L_h_rms"}

_TYPED = "typed"
"""The method of a plain number, for which whoever typed it vouches."""


def parse_numbers(arguments: Iterable[str]) -> dict[str, float]:
    """Read NAME=VALUE arguments.

    >>> parse_numbers(["I=4", "gamma=1e-2"])
    {'I': 4, 'gamma': 0.01}
    >>> parse_numbers(["gamma"])
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: An argument must be NAME=VALUE, as in gamma=0.01, not 'gamma'.
    """
    numbers: dict[str, float] = {}
    for argument in arguments:
        name, equals, text = (part.strip() for part in argument.partition("="))
        if not (name and equals and text):
            raise InputError(f"An argument must be NAME=VALUE, as in gamma=0.01, not {argument!r}.")
        if name in numbers:
            raise InputError(f"{name} is given twice; give it once.")
        try:
            numbers[name] = _tidy(float(text))
        except ValueError:
            raise InputError(f"{name} must be a number, not {text!r}.") from None
    return numbers


def _tidy(number: float) -> float:
    """Make a whole number an int, and a number too large for a float infinite."""
    try:
        plain = float(number)
    except OverflowError:
        return math.inf
    return int(plain) if plain.is_integer() and abs(plain) < 2**53 else plain


def read_object(path: Path) -> Mapping[str, Any]:
    """Read a file that holds one JSON object."""
    data = read_json_input(path, "a JSON file of symbols and numbers")
    if not isinstance(data, Mapping):
        raise InputError(f'{path} must hold a JSON object, as {{"L_g": 1.0, "sigma2": 0.1}}, not a {_kind_of(data)}.')
    if "readings" in data:  # what somebody typed has none
        try:
            check_seal(data, str(path))
        except AlteredError as error:
            remedy = "measure again, or give numbers of your own in a file of symbols and numbers"
            raise InputError(f"{str(error).rstrip('.')}; {remedy}.") from None
    return data


def _constants(path: Path) -> tuple[Mapping[str, Any], Scope | None]:
    """The object of a file's constants, and what is known of all that do not say themselves what they belong to."""
    data = read_object(path)
    inner = data.get("constants")
    if isinstance(inner, Mapping):  # what 'fedgauge measure' writes holds them among other things
        settings = data.get("settings")
        federation = settings.get("federation") if isinstance(settings, Mapping) else None
        return inner, Scope(federation if isinstance(federation, str) else None)
    # 'fedgauge theory constants' writes the minimiser too, which nobody types.
    return data, Scope() if "x_star" in data else None


def read_estimates(path: Path, wanted: Iterable[str] = SYMBOLS) -> Constants:
    """Read those of a file's constants that are wanted, with their intervals and scopes if it has them."""
    entries, scope = _constants(path)
    names = {name for name in wanted if name != "x_star"}  # which is a vector
    return Constants(tuple(_estimate(name, item, scope) for name, item in entries.items() if name in names))


def check_federation(path: Path, digest: str | None, what: str, weights: Sequence[float] | None = None) -> None:
    """Refuse constants that were measured on another federation, or with other weights, as far as the files say.

    Args:
        path: the file of constants.
        digest: the digest of the federation that they are wanted for.
        what: its name, for the message.
        weights: the weights w_i of its workers, which sum to one; None where all are equal.
    """
    settings = read_object(path).get("settings")
    measured = settings.get("federation") if isinstance(settings, Mapping) else None
    if digest and measured and measured != digest:
        raise InputError(
            f"{path} was measured on another federation than {what}; measure this one with 'fedgauge measure'."
        )
    check_weights(path, what, weights)


def check_weights(path: Path, what: str, weights: Sequence[float] | None) -> None:
    """Refuse constants that were measured with other weights of the workers, if a command wrote the file."""
    data = read_object(path)
    settings, typed = data.get("settings"), "x_star" not in data  # which 'fedgauge theory constants' writes
    held = settings.get("weights") if isinstance(settings, Mapping) else weights if typed else None
    if (held is None) != (weights is None) or (held is not None and list(held) != list(weights or ())):
        raise InputError(
            f"{path} was measured with other weights of the workers than {what}; measure it again, or give its weights."
        )


def read_values(path: Path) -> tuple[dict[str, tuple[float, Kind]], tuple[str, ...]]:
    """Read what any theorem uses of a file's constants, spelled as the theorems spell it, and check it.

    Whatever else the file holds is ignored. A file with nothing that a theorem uses is refused.

    Returns:
        The values with their kinds, and a sentence on each that counts for less than the file says.
    """
    check_weights(path, "the theorems have here", None)
    constants, notes = read_estimates(path, {*ACCEPTED, *_SPELLED}).fitted(Subject())
    values = _spell(constants)
    if "mu" in values and values["mu"][0] <= 0:
        del values["mu"]  # f is not strongly convex, which is no mistake: the theorems that need it have no mu then
    if not values:
        raise InputError(
            f"{path} holds no constant that a theorem uses; name what 'fedgauge measure --out' or "
            "'fedgauge theory constants --json' wrote."
        )
    check_kinds(
        {name: kind for name, (_, kind) in values.items()}, check_values({n: v for n, (v, _) in values.items()})
    )
    return values, notes


def _kind_of(data: Any) -> str:
    return "list" if isinstance(data, list) else "text" if isinstance(data, str) else "single value"


def _check_names(theorem: Theorem, names: Iterable[str]) -> None:
    for name in names:
        if name not in SYMBOLS:
            needs = f"{theorem.name} needs {', '.join(theorem.needs)}"
            raise InputError(f"There is no symbol {name} ({needs}); {nearest(name, ACCEPTED)}")


def _estimate(name: str, data: Any, scope: Scope | None = None) -> Estimate:
    entry, method = (data, "given") if isinstance(data, Mapping) else ({"value": data}, _TYPED)
    value, kind = entry.get("value"), entry.get("kind", "exact")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f'{name} must be a number or {{"value": number, "kind": kind}}, not {data!r}.')
    value = _tidy(value)
    if math.isnan(value) or (value < 0 and name not in SIGNED):
        raise InputError(f"{name} must be a finite number of at least 0, not {value!r}.")
    if {"low", "high"} <= set(entry):
        estimate = Estimate.from_json({"method": "given", **entry, "symbol": name})
    else:
        scope_of = Scope.from_json(entry["scope"]) if isinstance(entry.get("scope"), Mapping) else None
        estimate = Estimate(
            name, value, value, value, cast(Kind, kind), method, scope=scope_of
        )  # its kind is checked in use
    vouched = estimate.scope is not None or method == _TYPED
    return estimate if vouched else replace(estimate, scope=scope and scope.of(name))


def _spell(constants: Constants) -> dict[str, tuple[float, Kind]]:
    """Translate the names that theorems spell differently, and drop those that no theorem knows."""
    spelled = {name: (item.value, item.kind) for name, item in constants.items() if name in ACCEPTED}
    for name, other in _SPELLED.items():
        if name in constants and other not in constants:
            value = constants[name].value
            spelled[other] = (value if name == "L_h_paper" else non_negative(name, value) * value, constants[name].kind)
    return spelled


def _travel(theorem: Theorem, entries: Mapping[str, tuple[float, Kind]]) -> float | None:
    """How far a run can get from its first model, if the theorem says and all that it takes is known exactly."""
    exact = {name: value for name, (value, kind) in entries.items() if is_safe(name, kind)}
    return theorem.travel(exact)


class Collected(NamedTuple):
    """The numbers for a theorem.

    Attributes:
        values: the numbers, by symbol.
        kinds: their kinds.
        notes: a sentence on each constant that counts for less than its file says.
        caveat: what a certificate with these numbers takes for granted, or what it is about; it may be empty.
    """

    values: dict[str, float]
    kinds: dict[str, Kind]
    notes: tuple[str, ...] = ()
    caveat: str = ""


def collect(theorem: Theorem, arguments: Sequence[str] = (), path: Path | None = None) -> Collected:
    """Merge a file of values with NAME=VALUE arguments, which override it.

    Args:
        theorem: whose symbols are wanted; all others in the file are ignored.
        arguments: NAME=VALUE each.
        path: a JSON file.

    >>> from fedgauge.theory import find
    >>> collect(find("minibatch"), ["N=8", "sigma=3"]).values
    {'N': 8, 'sigma2': 9.0}
    """
    used = {*theorem.needs, *theorem.optional, *(theorem.needed("prior") if "prior" in theorem.versions else ())}
    used |= {name for name, other in _SPELLED.items() if other in used}
    typed = parse_numbers(arguments)
    _check_names(theorem, [*(_constants(path)[0] if path else ()), *typed])
    from_arguments = _spell(Constants(tuple(_estimate(name, value) for name, value in typed.items())))
    read = read_estimates(path, used) if path else Constants(())
    fitted, notes = read.fitted(Subject(travel=_travel(theorem, _spell(read) | from_arguments)))
    merged = {**_spell(fitted), **from_arguments}
    # An argument that replaces a constant of the file makes a remark on that constant pointless.
    notes = tuple(note for note in notes if note.partition(" ")[0] not in from_arguments)
    plain = (item.symbol for item in read.estimates if item.method == _TYPED)
    if not SETTINGS.issuperset((*typed, *plain)):
        caveat = "It takes the numbers given as exact."
    elif any(item.scope for item in read.estimates):
        caveat = "It is about the federation and the first model that the file's constants belong to, and no other."
    else:
        caveat = ""
    kinds = {name: kind for name, (_, kind) in merged.items()}
    return Collected({name: value for name, (value, _) in merged.items()}, kinds, notes, caveat)
