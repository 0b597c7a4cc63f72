"""How far stochastic gradients are from their mean, round by round, in a file beside a run's records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.base.errors import MachineError
from fedgauge.base.files import open_file, read_file, read_lines, remedy
from fedgauge.values import Trace


class Noise:
    """The variances of the workers' stochastic gradients, by round; a round that is run again replaces the old values.

    Args:
        place: the run's directory. Each round becomes a line of ``noise.jsonl`` there, so that a resumed run has them
            all. Without a directory, they are kept in memory only.

    >>> noise = Noise()
    >>> noise.add(0, {"0": 1.0, "1": 3.0})
    >>> noise.rounds
    {0: {'0': 1.0, '1': 3.0}}
    """

    def __init__(self, place: Path | None = None) -> None:
        self._file = None if place is None else place / "noise.jsonl"
        self.rounds: dict[int, dict[str, float]] = {}
        if self._file is not None and self._file.exists():
            lines = read_lines(read_file(self._file), _entry, self._file.name)
            self.rounds = dict(lines)
            # Remove a line that was cut short; it would spoil the next one.
            with open_file(self._file, "r+b") as file:
                file.truncate(lines.end(len(lines)))

    def add(self, round: int, each: Mapping[str, float]) -> None:
        """Keep the variances of a round, by worker."""
        self.rounds[round] = dict(each)
        if self._file is None:
            return
        try:
            with open_file(self._file, "a") as file:
                file.write(json.dumps({"round": round, "sigma2": self.rounds[round]}) + "\n")
        except OSError as error:
            raise MachineError(
                f"The run in {self._file.parent} stopped: {error.strerror}; its records can be read, and it can be"
                f" resumed: {remedy(error)}."
            ) from None

    def along(self, trace: Trace) -> list[dict[str, Any]]:
        """The variances at the models of a run's records, in order."""
        recorded = [record.round for record in trace.rounds if record.round in self.rounds]
        return [{"round": round, "sigma2": self.rounds[round]} for round in recorded]


def _entry(data: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    return int(data["round"]), dict(data["sigma2"])
