"""Which algorithms can be gauged: those of which a run with one local step per round is a fair base."""

from __future__ import annotations

from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.schedules import refuse_round_schedules
from fedgauge.errors import InputError


def check_algorithm(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose rates or optimiser states depend on how steps are divided into rounds."""
    refuse_round_schedules(algorithm.parameters, "The gauge")
    if algorithm.parameters.get("optimiser_state") == "reset":
        raise InputError(
            "With optimiser_state = reset, the gauge's base run of one local step per round would begin its optimiser"
            " anew with every step; gauge with optimiser_state = kept or averaged."
        )
