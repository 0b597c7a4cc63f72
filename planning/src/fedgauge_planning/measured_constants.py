"""Plan an experiment by theory, with constants that are measured here or read from a file."""

from __future__ import annotations

from pathlib import Path

from fedgauge.algorithms import is_plain
from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.measurement.proofs import UNPROVED, prover
from fedgauge.measurement.session import MeasureOptions, measure
from fedgauge.measurement.values import Measurement, whole
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.setup import Setup
from fedgauge.theory.arguments import check_federation, read_estimates
from fedgauge.values import Constants, Estimate, initial_gap
from fedgauge_planning.by_theory import theory_plan
from fedgauge_planning.goal import Goal
from fedgauge_planning.theorem_inputs import check_participation
from fedgauge_planning.theory_result import TheoryPlan

_RECOMPUTED = "F was computed again for this run, because that of the file"
_LOOKED = 3  # number of rounds of the trajectory from the first model


def at_start(setup: Setup) -> Measurement:
    """Measure constants at the first model: for quadratics exact ones, and for all what a few rounds show.

    Exact ones are those of equal weights, so that with other weights there is only what the rounds show.
    """
    exact = isinstance(setup.federation, QuadraticFederation) and setup.participation.weights is None
    certain = ("certified",) if exact else ()
    options = MeasureOptions((*certain, "divergence", "noise", "trajectory"), rounds=_LOOKED, seeds=1)
    return whole(measure(setup, model=setup.first_model, origin="first model", options=options))


def with_gap(constants: Constants, setup: Setup, loss: float) -> Constants:
    """Add F of the run, the gap between its first loss and the minimum, where the constants have none that counts.

    Args:
        constants: those that are known.
        setup: the run.
        loss: its first loss.
    """
    held = constants.get("F")
    if held is not None and held.kind != "assumed":
        return constants
    federation = setup.federation
    if isinstance(federation, QuadraticFederation):
        floor = setup.floor
        gap = initial_gap(loss, floor, floor)  # with weights of its own, f is another function
        if setup.participation.weights is None:
            gap = federation.constants_at(setup.first_model.numpy())["F"]
    else:
        gap = _proved_gap(constants, setup) or initial_gap(loss, 0.0)
    return Constants((*(item for item in constants.values() if item.symbol != "F"), gap))


def _proved_gap(constants: Constants, setup: Setup) -> Estimate | None:
    """F at the run's first model from a proved f*, for one pass over the data; None where f* is not proved."""
    least, prove = _proved_minimum(constants, setup), prover()
    return prove.gap_at(setup.federation, setup.first_model, least) if least and prove else None


def _proved_minimum(constants: Constants, setup: Setup) -> Estimate | None:
    """The f* that was proved for a federation other than quadratics, if there is one."""
    least = constants.get("f_star")
    if isinstance(setup.federation, QuadraticFederation) or least is None or least.kind not in ("exact", "lower"):
        return None
    return least if least.scope and least.scope.federation == setup.federation.digest else None


def theory_of(
    experiment: Experiment, goal: Goal, cost: Cost, *, values: Path | None = None, theorem: str | None = None
) -> TheoryPlan:
    """Make the plan that a theorem certifies for an experiment, and judge the experiment's own rates by the theorem.

    Args:
        experiment: the federation; its I, gamma and eta are compared with the theorem's conditions.
        goal: a squared gradient norm, or a loss for the theorem about strongly convex objectives.
        cost: the cost of a round.
        values: a file of constants; by default, they are measured at the first model.
        theorem: name of the theorem; by default, the one that applies.
    """
    setup = prepare(experiment)
    federation, rates = setup.federation, experiment.algorithm
    if rates.name != "fedavg":
        raise InputError(
            f"The theory plans FedAvg, not {rates.name}; leave out the algorithm, or plan by pilot runs (--mode pilot)."
        )
    if not is_plain(setup.algorithm.parameters):
        raise InputError(
            "The theory plans FedAvg with plain local SGD; leave out the local optimiser and the schedules, or plan by"
            " pilot runs (--mode pilot)."
        )
    if not isinstance(setup.local_steps, int):
        raise InputError("A plan chooses one number of local steps for all workers; give local_steps as one number.")
    check_participation(setup.participation, federation.num_workers)
    if values:
        check_federation(values, federation.digest, experiment.data.name, setup.participation.shares)
    measured = at_start(setup)
    fitted, notes = (read_estimates(values) if values else measured.constants).fitted(setup.subject)
    constants = with_gap(fitted, setup, float(measured.point["loss"]))
    notes = tuple(note.replace("F counts as assumed, because it", _RECOMPUTED) for note in notes)
    if constants is not fitted and _proved_minimum(fitted, setup) and not prover():
        notes = (*notes, UNPROVED)
    assert rates.gamma is not None  # an experiment has one
    eta = rates.parameters.get("eta", 1.0)
    return theory_plan(
        constants,
        goal=goal,
        cost=cost.completed(federation),
        num_workers=federation.num_workers,
        participants=setup.participation,
        eta=eta,
        theorem=theorem,
        practice=(setup.local_steps, rates.gamma, eta),
        remarks=notes,
    )
