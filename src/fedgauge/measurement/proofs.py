"""Constants that are certain: known from a quadratic's matrices, or proved from a model's data by another package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from fedgauge.base.errors import InputError
from fedgauge.base.user_code import READINGS, plugins, remedy
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.measurement.values import Reading
from fedgauge.simulation.setup import Setup
from fedgauge.values import Estimate

if TYPE_CHECKING:
    from fedgauge.measurement.session import Session


class Prover(Protocol):
    """What proves the constants of a model from its data: the reading ``certified`` that another package adds."""

    def __call__(self, session: Session) -> Iterable[Reading]:
        """Take the reading."""
        ...

    def covers(self, federation: Federation) -> bool:
        """Whether the constants of a federation can be proved."""
        ...

    def gap_at(self, federation: Federation, start: torch.Tensor, least: Estimate) -> Estimate:
        """Prove F at a first model, given f_star of the same federation as it was proved."""
        ...


def prover() -> Prover | None:
    """What proves the constants of a model, if it is installed."""
    found: Prover | None = plugins(READINGS).get("certified")
    return found


UNPROVED = f"F is not proved for this run's first model, which takes another package; {remedy('reading certified')}"
"""What is said where f_star was proved, and nothing that is installed proves F from it."""


def certified(session: Session) -> Iterable[Reading]:
    """Constants that hold at every model: known from a quadratic's matrices, or proved from a model's data."""
    federation, setup = session.setup.federation, session.setup
    if setup.participation.weights is not None:
        raise InputError("Constants can be certified only for workers with equal weights; leave out the weights.")
    if isinstance(federation, QuadraticFederation):
        meaning = "Exact to rounding: from a quadratic's matrices (f*, F and d0 for the run's first model)."
        exact = (*federation.constants().values(), *federation.constants_at(setup.first_model.numpy()).values())
        taken: Iterable[Reading] = [Reading("certified", meaning, exact)]
    elif prove := prover():
        taken = prove(session)
    else:
        raise InputError(f"The constants of a model are proved by another package; {remedy('reading certified')}")
    yield from (replace(reading, estimates=_of_seed(reading.estimates, setup)) for reading in taken)


def _of_seed(estimates: Iterable[Estimate], setup: Setup) -> tuple[Estimate, ...]:
    """Note the seed beside the digest of the first model, as a run says its seed and only a chosen model's digest."""
    if setup.start is not None:
        return tuple(estimates)
    return tuple(
        replace(item, scope=replace(item.scope, seed=setup.seed)) if item.scope and item.scope.start else item
        for item in estimates
    )


def is_certain(federation: Federation) -> bool:
    """Whether constants of a federation can be certified with what is installed."""
    prove = prover()
    return isinstance(federation, QuadraticFederation) or (prove is not None and prove.covers(federation))


def without_proof(setup: Setup) -> list[str]:
    """What is said of a model whose constants can be proved, where nothing that is installed does so."""
    # Which models of a user's own can be proved, only what proves them knows.
    if prover() is not None or setup.experiment.get("model", {}).get("name") not in ("linear", "softmax"):
        return []
    missing = remedy("reading certified")
    return [f"Constants that hold at every model are not proved, which takes another package; {missing}"]
