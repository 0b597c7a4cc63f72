"""The result of a search for violations, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.values import Result


@dataclass(frozen=True)
class Falsification(Result):
    """What ``fedgauge falsify`` writes: one row per form of a theorem's version, and the violations that it saved."""

    kind: ClassVar[str] = "falsification"
    written_by: ClassVar[str] = "falsify"

    command: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    complete: bool
    seconds: float
    rows: tuple[Mapping[str, Any], ...]
    cases: tuple[Mapping[str, Any], ...]


RESULTS = (Falsification,)
"""What reports can read."""
