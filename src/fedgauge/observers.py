"""Observers of a run: what is told of every round, live or afterwards.

An observer is called with the number of rounds done and the record that was made, if one was; ``simulate`` calls it
while it runs, and :func:`replay` with a run that is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from fedgauge.archive import FoundRun
from fedgauge.errors import InputError
from fedgauge.values import Round

QUANTITIES = {"loss": "loss", "accuracy": "test accuracy", "grad2": "squared gradient norm", "spread": "spread"}
"""The entries of a record that are shown, and what they are called."""


def replay(run: FoundRun, observer: Any) -> None:
    """Tell an observer of all records of a run."""
    for record in run.rounds:
        observer(record.round, record)


class TensorBoard:
    """An observer that writes TensorBoard's event files."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise InputError(
                "TensorBoard's files need the package tensorboard, which is not installed; run:"
                " pip install 'fedgauge[tensorboard]'."
            ) from None
        self._writer: Any = SummaryWriter(str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, done: int, record: Round | None) -> None:
        """Write what the record has."""
        if record is None:
            return
        values = {name: getattr(record, key) for key, name in QUANTITIES.items()}
        for name, value in {**values, "L_h seen": record.L_h_ratio}.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.round)
