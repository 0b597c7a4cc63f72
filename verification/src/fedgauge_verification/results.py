"""The result of a search for violations, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError
from fedgauge.base.files import read_file
from fedgauge.values import Result


@dataclass(frozen=True)
class Falsification(Result):
    """What ``fedgauge falsify`` writes: one row per form of a theorem's version, and the violations that it saved.

    ``parts`` are the commands whose rows were taken in later.
    """

    kind: ClassVar[str] = "falsification"
    written_by: ClassVar[str] = "falsify"

    command: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    complete: bool
    seconds: float
    rows: tuple[Mapping[str, Any], ...]
    cases: tuple[Mapping[str, Any], ...]
    parts: tuple[str, ...] = ()


def read_falsification(path: Path, samples: int, searches: int, seed: int) -> dict[str, Any]:
    """An earlier result, if it has the same federations as a search with these settings."""
    try:
        found = Falsification.from_json(parse_json(read_file(path))).to_json()
    except (OSError, ValueError, KeyError, TypeError, InputError):
        raise InputError(f"{path} is no result of 'fedgauge falsify'; name a result.json that it wrote.") from None
    for name, given in {"samples": samples, "searches": searches, "seed": seed}.items():
        if found["settings"].get(name) != given:
            raise InputError(
                f"{path} is of {name} {found['settings'].get(name)}, and this search of {name} {given}; rows of the two"
                " would not be about the same federations: give the same."
            )
    return found


def taken_in(earlier: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier result with the rows of another in place of those of the same theorems and versions."""
    new: dict[tuple[str, str], list[Any]] = {}
    for row in result["rows"]:
        new.setdefault((row["theorem"], row["version"]), []).append(row)
    rows: list[Any] = []
    replaced = set(new)
    for row in earlier["rows"]:
        key = row["theorem"], row["version"]
        rows += new.pop(key, []) if key in replaced else [row]
    rows += [row for each in new.values() for row in each]
    return {**earlier, "rows": rows, "parts": [*earlier.get("parts", ()), result["command"]]}


RESULTS = (Falsification,)
"""What reports can read."""
