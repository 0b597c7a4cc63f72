"""The settings of a run: everything that determines its bits, as saved in its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedgauge.base.codec import Value
from fedgauge.federation.participation import Participation


@dataclass(frozen=True)
class Settings(Value):
    """Everything that determines the bits of a run.

    Attributes:
        federation: digest of the federation.
        algorithm: name and parameters of the algorithm, and a fingerprint of its code if these do not identify it.
        local_steps: one number, one number per worker, or the name and parameters of an adaptive pace; None where it is
            not known, as for a run over Flower that was only measured.
        rounds: the number R of rounds.
        participation: who takes part in each round.
        seed: seed of all randomness.
        record_every: every how many rounds a record is made.
        target_loss: the loss at which the run stops.
        chunk: number of workers whose models are in memory at once.
        evaluator: digest of the test data.
        target_accuracy: the test accuracy at which the run stops.
        target_grad2: the squared gradient norm at which the run stops.
        target_records: how many records in a row must meet a target.
        watch: whether the spread and the ratios of local models are recorded.
        start: digest of the first model, if the caller chose it.
        record_sample: how many examples of each worker records are made from; None for all.
        record_tests: how many test examples; None for all.
    """

    federation: str
    algorithm: Mapping[str, Any]
    local_steps: int | tuple[int, ...] | Mapping[str, Any] | None
    rounds: int
    participation: Participation
    seed: int
    record_every: int
    target_loss: float | None
    chunk: int
    evaluator: str | None = None
    target_accuracy: float | None = None
    target_grad2: float | None = None
    target_records: int = 1
    watch: bool = True
    start: str | None = None
    record_sample: int | None = None
    record_tests: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the settings as they are saved in the run's directory."""
        entries = super().to_json()
        # Unused options are left out, so that adding an option does not change the settings of earlier runs.
        says_something = {
            "evaluator": self.evaluator is not None,
            "target_accuracy": self.evaluator is not None,
            "target_grad2": self.target_grad2 is not None,
            "target_records": self.target_records != 1,
            "watch": not self.watch,
            "start": self.start is not None,
            "record_sample": self.record_sample is not None,
            "record_tests": self.record_tests is not None,
        }
        return {name: value for name, value in entries.items() if says_something.get(name, True)}
