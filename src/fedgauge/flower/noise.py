"""How far stochastic gradients are from their mean, round by round, in a file beside a run's records."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.errors import MachineError
from fedgauge.system.files import read_lines
from fedgauge.values import Trace


class Noise:
    """The variances that workers told, by round; what a round that is run again tells takes the place of the old.

    Args:
        place: the run's directory, in which each round is a line of ``noise.jsonl``, so that a run that goes on has
            them all; without it they are kept here alone.

    >>> noise = Noise()
    >>> noise.add(0, {"0": 1.0, "1": 3.0})
    >>> noise.rounds
    {0: {'0': 1.0, '1': 3.0}}
    """

    def __init__(self, place: Path | None = None) -> None:
        self._file = None if place is None else place / "noise.jsonl"
        self.rounds: dict[int, dict[str, float]] = {}
        if self._file is not None and self._file.exists():
            lines = read_lines(self._file.read_bytes(), lambda data: (int(data["round"]), dict(data["sigma2"])))
            self.rounds = dict(line.data for line in lines)
            # A line that was cut short would spoil the one that follows it.
            os.truncate(self._file, lines[-1].end if lines else 0)

    def add(self, round: int, each: Mapping[str, float]) -> None:
        """Keep what the workers of a round told, by their names."""
        self.rounds[round] = dict(each)
        if self._file is None:
            return
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"round": round, "sigma2": self.rounds[round]}) + "\n")
        except OSError as error:
            raise MachineError(
                f"The run in {self._file.parent} stopped: {error.strerror}; what was recorded can be read, and with"
                " space made it can be resumed."
            ) from None

    def along(self, trace: Trace) -> list[dict[str, Any]]:
        """What was told at the models of a run's records, in order."""
        recorded = [record.round for record in trace.rounds if record.round in self.rounds]
        return [{"round": round, "sigma2": self.rounds[round]} for round in recorded]
