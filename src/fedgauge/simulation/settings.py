"""The settings of a run: everything that decides its bits, as its directory keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedgauge.codec import Value
from fedgauge.federation.participation import Participation


@dataclass(frozen=True)
class Settings(Value):
    """What decides a run.

    Attributes:
        federation: the digest of the federation.
        algorithm: its name and parameters, and a fingerprint of its functions where the name does not say them all.
        local_steps: one number, one per worker, or the adaptive pace's name and numbers.
        rounds: R.
        participation: who takes part.
        seed: of all randomness.
        record_every: a round out of how many is recorded.
        target_loss: where the run stops.
        chunk: how many workers' models are held at once.
        evaluator: the digest of the test data.
        target_accuracy: where the run stops.
        target_grad2: where the run stops.
        watch: False where local models are not watched.
        start: the digest of a first model that was given.
    """

    federation: str
    algorithm: Mapping[str, Any]
    local_steps: int | tuple[int, ...] | Mapping[str, Any]
    rounds: int
    participation: Participation
    seed: int
    record_every: int
    target_loss: float | None
    chunk: int
    evaluator: str | None = None
    target_accuracy: float | None = None
    target_grad2: float | None = None
    watch: bool = True
    start: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the settings as the run's directory keeps them."""
        entries = super().to_json()
        # What says nothing is left out, so that runs without it keep the settings that they always had.
        says_something = {
            "evaluator": self.evaluator is not None,
            "target_accuracy": self.evaluator is not None,
            "target_grad2": self.target_grad2 is not None,
            "watch": not self.watch,
            "start": self.start is not None,
        }
        return {name: value for name, value in entries.items() if says_something.get(name, True)}
