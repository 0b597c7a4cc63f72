"""The results of commands that show an idea or look for a counterexample, and that have no page of their own."""

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


@dataclass(frozen=True)
class DemoResult(Result):
    """What ``fedgauge demo`` writes: the runs on digits, and both federations of quadratics."""

    kind: ClassVar[str] = "demo"
    written_by: ClassVar[str] = "demo"

    digits: Mapping[str, Any]
    gamma: float
    eta: float
    rounds: int
    seed: int
    federations: Mapping[str, Any]
