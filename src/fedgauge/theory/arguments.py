"""The numbers for a theorem: from a JSON file and from NAME=VALUE arguments, under the theorems' own names.

A file is an object of ``name: number`` or ``name: {"value": number, "kind": kind}``, as ``fedgauge constants --json``
prints it, or what ``fedgauge measure`` writes. A plain number counts as exact: you vouch for it. Four
symbols are translated unless the theorems' own name is given too: sigma and zeta (or zeta_rms) are squared to
sigma2 and zeta2, and L_h_paper, which is never below L_h_rms, stands for it. What the theorem does not use is
ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fedgauge.errors import InputError, nearest, non_negative
from fedgauge.symbols import SYMBOLS
from fedgauge.theory.base import Theorem
from fedgauge.theory.inputs import ACCEPTED, check_kinds, check_values
from fedgauge.values import Kind

# In this order: zeta_rms, which the proofs use, gives way to zeta where a file has both.
_SPELLED: dict[str, str] = {"sigma": "sigma2", "zeta_rms": "zeta2", "zeta": "zeta2", "L_h_paper": "L_h_rms"}


def parse_numbers(arguments: Iterable[str]) -> dict[str, float]:
    """Read NAME=VALUE arguments.

    >>> parse_numbers(["I=4", "gamma=1e-2"])
    {'I': 4, 'gamma': 0.01}
    >>> parse_numbers(["gamma"])
    Traceback (most recent call last):
    fedgauge.errors.InputError: An argument must be NAME=VALUE, as in gamma=0.01, not 'gamma'.
    """
    found: dict[str, float] = {}
    for argument in arguments:
        name, equals, text = (part.strip() for part in argument.partition("="))
        if not (name and equals and text):
            raise InputError(f"An argument must be NAME=VALUE, as in gamma=0.01, not {argument!r}.")
        if name in found:
            raise InputError(f"{name} is given twice; give it once.")
        try:
            found[name] = _tidy(float(text))
        except ValueError:
            raise InputError(f"{name} must be a number, not {text!r}.") from None
    return found


def _tidy(number: float) -> float:
    """Make a whole number an int, and a number too large for a float infinite."""
    try:
        plain = float(number)
    except OverflowError:
        return math.inf
    return int(plain) if plain.is_integer() and abs(plain) < 2**53 else plain


def read_object(path: Path) -> Mapping[str, Any]:
    """Read a file that holds one JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a JSON file of symbols and numbers.") from None
    except UnicodeDecodeError:
        raise InputError(f"Cannot read {path}: it is not text; name a JSON file of symbols and numbers.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); fix the file or write it again.") from None
    if not isinstance(data, Mapping):
        raise InputError(f'{path} must hold a JSON object, as {{"L_g": 1.0, "sigma2": 0.1}}, not a {_kind_of(data)}.')
    return data


def _constants(path: Path) -> Mapping[str, Any]:
    """The object of a file's constants; what 'fedgauge measure' writes holds them among other things."""
    data = read_object(path)
    inner = data.get("constants")
    return inner if isinstance(inner, Mapping) else data


def read_constants(path: Path) -> dict[str, tuple[float, Kind]]:
    """Read a file's constants with their kinds, by symbol."""
    return {name: _entry(name, item) for name, item in _constants(path).items() if name in SYMBOLS}


def check_federation(path: Path, digest: str | None, what: str) -> None:
    """Refuse constants that were measured on another federation, as far as both files say which.

    Args:
        path: the file of constants.
        digest: the digest of the federation that they are wanted for.
        what: its name, for the message.
    """
    settings = read_object(path).get("settings")
    measured = settings.get("federation") if isinstance(settings, Mapping) else None
    if digest and measured and measured != digest:
        raise InputError(
            f"{path} was measured on another federation than {what}; measure this one with 'fedgauge measure'."
        )


def read_values(path: Path) -> dict[str, tuple[float, Kind]]:
    """Read what any theorem uses of a file's constants, spelled as the theorems spell it, and check it.

    Whatever else the file holds is ignored. A file with nothing that a theorem uses is refused.
    """
    wanted = {*ACCEPTED, *_SPELLED}
    found = _spell({name: _entry(name, item) for name, item in _constants(path).items() if name in wanted})
    if "mu" in found and found["mu"][0] <= 0:
        del found["mu"]  # f is not strongly convex, which is no mistake: the theorems that need it have no mu then
    if not found:
        raise InputError(
            f"{path} holds no constant that a theorem uses; name what 'fedgauge measure --out' or "
            "'fedgauge constants --json' wrote."
        )
    check_kinds({name: kind for name, (_, kind) in found.items()}, check_values({n: v for n, (v, _) in found.items()}))
    return found


def _kind_of(data: Any) -> str:
    return "list" if isinstance(data, list) else "text" if isinstance(data, str) else "single value"


def _check_names(theorem: Theorem, names: Iterable[str]) -> None:
    for name in names:
        if name not in SYMBOLS:
            needs = f"{theorem.name} needs {', '.join(theorem.needs)}"
            raise InputError(f"There is no symbol {name} ({needs}); {nearest(name, ACCEPTED)}")


def _entry(name: str, data: Any) -> tuple[float, Kind]:
    value, kind = (data.get("value"), data.get("kind", "exact")) if isinstance(data, Mapping) else (data, "exact")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f'{name} must be a number or {{"value": number, "kind": kind}}, not {data!r}.')
    return _tidy(value), cast(Kind, kind)  # checked where it is used


def _spell(entries: Mapping[str, tuple[float, Kind]]) -> dict[str, tuple[float, Kind]]:
    """Translate the names that theorems spell differently, and drop those that no theorem knows."""
    spelled = {name: entry for name, entry in entries.items() if name in ACCEPTED}
    for name, other in _SPELLED.items():
        if name in entries and other not in entries:
            value, kind = entries[name]
            spelled[other] = (value if name == "L_h_paper" else non_negative(name, value) * value, kind)
    return spelled


def collect(
    theorem: Theorem, arguments: Sequence[str] = (), path: Path | None = None
) -> tuple[dict[str, float], dict[str, Kind]]:
    """Merge a file of values with NAME=VALUE arguments, which override it.

    Args:
        theorem: whose symbols are wanted; all others in the file are ignored.
        arguments: NAME=VALUE each.
        path: a JSON file.

    Returns:
        The values and their kinds, by symbol.

    >>> from fedgauge.theory import find
    >>> collect(find("minibatch"), ["N=8", "sigma=3"])
    ({'N': 8, 'sigma2': 9.0}, {'N': 'exact', 'sigma2': 'exact'})
    """
    used = {*theorem.needs, *theorem.optional, *(theorem.needed("prior") if "prior" in theorem.versions else ())}
    used |= {name for name, other in _SPELLED.items() if other in used}
    data = _constants(path) if path else {}
    typed = parse_numbers(arguments)
    _check_names(theorem, [*data, *typed])
    from_file = _spell({name: _entry(name, item) for name, item in data.items() if name in used})
    from_arguments = _spell({name: (value, "exact") for name, value in typed.items()})
    merged = {**from_file, **from_arguments}
    return {name: value for name, (value, _) in merged.items()}, {name: kind for name, (_, kind) in merged.items()}
