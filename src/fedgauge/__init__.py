"""How heterogeneous is my federation, and how many local steps can it afford?

>>> import fedgauge as fg
>>> federation = fg.random_quadratics(num_workers=10, dim=20, hessian_spread=0.1, seed=0)
>>> trace = fg.simulate(federation, fg.fedavg(gamma=0.05), local_steps=10, rounds=100)
>>> bool(trace.losses[-1] < trace.losses[0])
True
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgauge.algorithms import ALGORITHMS as ALGORITHMS
    from fedgauge.algorithms import Algorithm as Algorithm
    from fedgauge.algorithms import Schedule as Schedule
    from fedgauge.algorithms import diloco as diloco
    from fedgauge.algorithms import fedadagrad as fedadagrad
    from fedgauge.algorithms import fedadam as fedadam
    from fedgauge.algorithms import fedavg as fedavg
    from fedgauge.algorithms import fedavgm as fedavgm
    from fedgauge.algorithms import fednova as fednova
    from fedgauge.algorithms import fedprox as fedprox
    from fedgauge.algorithms import fedyogi as fedyogi
    from fedgauge.algorithms import fingerprint as fingerprint
    from fedgauge.algorithms import make_algorithm as make_algorithm
    from fedgauge.algorithms import minibatch as minibatch
    from fedgauge.algorithms import momentum as momentum
    from fedgauge.algorithms import scaffold as scaffold
    from fedgauge.algorithms import slowmo as slowmo
    from fedgauge.algorithms import with_optimiser as with_optimiser
    from fedgauge.algorithms import with_schedules as with_schedules
    from fedgauge.data.dataset import Dataset as Dataset
    from fedgauge.data.dataset import from_torch as from_torch
    from fedgauge.data.loading import load_dataset as load_dataset
    from fedgauge.data.partition import Partition as Partition
    from fedgauge.data.scaling import standardise as standardise
    from fedgauge.data.schemes import make_partition as make_partition
    from fedgauge.data.shifts import SHIFTS as SHIFTS
    from fedgauge.data.shifts import shift_data as shift_data
    from fedgauge.errors import InputError as InputError
    from fedgauge.exact.expectation import Expectation as Expectation
    from fedgauge.exact.expectation import expect as expect
    from fedgauge.experiment.config import Experiment as Experiment
    from fedgauge.experiment.own_data import PerWorker as PerWorker
    from fedgauge.experiment.prepare import execute as execute
    from fedgauge.experiment.prepare import prepare as prepare
    from fedgauge.experiment.sweep import Sweep as Sweep
    from fedgauge.experiment.sweep import run_sweep as run_sweep
    from fedgauge.federation.federating import federate as federate
    from fedgauge.federation.generate import random_quadratics as random_quadratics
    from fedgauge.federation.models import MODELS as MODELS
    from fedgauge.federation.models import Model as Model
    from fedgauge.federation.models import make_model as make_model
    from fedgauge.federation.participation import Participation as Participation
    from fedgauge.federation.protocols import Federation as Federation
    from fedgauge.federation.quadratic import QuadraticFederation as QuadraticFederation
    from fedgauge.federation.supervised import SupervisedFederation as SupervisedFederation
    from fedgauge.measurement.by_worker import evaluate_workers as evaluate_workers
    from fedgauge.measurement.certification import certify as certify
    from fedgauge.measurement.curvature import curvature as curvature
    from fedgauge.measurement.decomposition import decompose as decompose
    from fedgauge.measurement.design import DesignOptions as DesignOptions
    from fedgauge.measurement.design import design as design
    from fedgauge.measurement.designed import Design as Design
    from fedgauge.measurement.divergence import divergence as divergence
    from fedgauge.measurement.gauge.gauge import gauge as gauge
    from fedgauge.measurement.gauge.options import GaugeOptions as GaugeOptions
    from fedgauge.measurement.gauge.result import GaugeResult as GaugeResult
    from fedgauge.measurement.lenses import lenses as lenses
    from fedgauge.measurement.local import LocalSteps as LocalSteps
    from fedgauge.measurement.measuring import READINGS as READINGS
    from fedgauge.measurement.measuring import MeasureOptions as MeasureOptions
    from fedgauge.measurement.measuring import measure as measure
    from fedgauge.measurement.noise import noise as noise
    from fedgauge.measurement.passes import Meter as Meter
    from fedgauge.measurement.reading import Measurement as Measurement
    from fedgauge.measurement.reading import Reading as Reading
    from fedgauge.measurement.sampled import sampled_deviation as sampled_deviation
    from fedgauge.measurement.sampled import sampled_divergence as sampled_divergence
    from fedgauge.measurement.trajectory import near_convergence as near_convergence
    from fedgauge.measurement.trajectory import trajectory as trajectory
    from fedgauge.measurement.worker_evaluation import WorkerEvaluation as WorkerEvaluation
    from fedgauge.pace.adaptive import Pace as Pace
    from fedgauge.pace.adaptive import adaptive_pace as adaptive_pace
    from fedgauge.pace.cost import Cost as Cost
    from fedgauge.planning.by_theory import theory_plan as theory_plan
    from fedgauge.planning.goal import Goal as Goal
    from fedgauge.planning.plan import Plan as Plan
    from fedgauge.planning.planner import PlanOptions as PlanOptions
    from fedgauge.planning.planner import plan as plan
    from fedgauge.planning.theory_plan import TheoryPlan as TheoryPlan
    from fedgauge.runs.export import read_records as read_records
    from fedgauge.runs.finished import read_trace as read_trace
    from fedgauge.runs.observers import watching as watching
    from fedgauge.runs.reader import FoundRun as FoundRun
    from fedgauge.runs.reader import find_runs as find_runs
    from fedgauge.runs.reader import read_run as read_run
    from fedgauge.simulation.loop import InterruptedRunError as InterruptedRunError
    from fedgauge.simulation.loop import simulate as simulate
    from fedgauge.simulation.options import Compute as Compute
    from fedgauge.simulation.options import Keep as Keep
    from fedgauge.simulation.options import Recording as Recording
    from fedgauge.simulation.options import StopAt as StopAt
    from fedgauge.simulation.setup import Setup as Setup
    from fedgauge.simulation.setup import steps_of_epochs as steps_of_epochs
    from fedgauge.theory import COROLLARIES as COROLLARIES
    from fedgauge.theory import THEOREMS as THEOREMS
    from fedgauge.theory import Inequality as Inequality
    from fedgauge.theory import Theorem as Theorem
    from fedgauge.theory import best_gamma as best_gamma
    from fedgauge.theory import best_local_steps as best_local_steps
    from fedgauge.theory import corollary_rates as corollary_rates
    from fedgauge.theory.answer import Answer as Answer
    from fedgauge.theory.answer import bound as bound
    from fedgauge.values import Bound as Bound
    from fedgauge.values import Condition as Condition
    from fedgauge.values import Constants as Constants
    from fedgauge.values import Estimate as Estimate
    from fedgauge.values import Round as Round
    from fedgauge.values import Scope as Scope
    from fedgauge.values import Source as Source
    from fedgauge.values import Subject as Subject
    from fedgauge.values import Term as Term
    from fedgauge.values import Trace as Trace

_HOMES = {
    "fedgauge.runs.observers": "watching",
    "fedgauge.runs.export": "read_records",
    "fedgauge.measurement.sampled": "sampled_deviation sampled_divergence",
    "fedgauge.measurement.local": "LocalSteps",
    "fedgauge.measurement.gauge.gauge": "GaugeOptions gauge",
    "fedgauge.measurement.gauge.result": "GaugeResult",
    "fedgauge.algorithms": (
        "ALGORITHMS Algorithm Schedule diloco fedadagrad fedadam fedavg fedavgm fednova fedprox fedyogi fingerprint"
        " make_algorithm minibatch momentum scaffold slowmo with_optimiser with_schedules"
    ),
    "fedgauge.data.dataset": "Dataset from_torch",
    "fedgauge.data.scaling": "standardise",
    "fedgauge.data.loading": "load_dataset",
    "fedgauge.data.partition": "Partition",
    "fedgauge.data.schemes": "make_partition",
    "fedgauge.data.shifts": "SHIFTS shift_data",
    "fedgauge.errors": "InputError",
    "fedgauge.exact.expectation": "Expectation expect",
    "fedgauge.experiment.config": "Experiment",
    "fedgauge.experiment.own_data": "PerWorker",
    "fedgauge.experiment.prepare": "execute prepare",
    "fedgauge.experiment.sweep": "Sweep run_sweep",
    "fedgauge.federation.generate": "random_quadratics",
    "fedgauge.federation.models": "MODELS Model make_model",
    "fedgauge.federation.participation": "Participation",
    "fedgauge.federation.protocols": "Federation",
    "fedgauge.federation.quadratic": "QuadraticFederation",
    "fedgauge.federation.federating": "federate",
    "fedgauge.federation.supervised": "SupervisedFederation",
    "fedgauge.measurement.by_worker": "evaluate_workers",
    "fedgauge.measurement.worker_evaluation": "WorkerEvaluation",
    "fedgauge.measurement.certification": "certify",
    "fedgauge.measurement.curvature": "curvature",
    "fedgauge.measurement.decomposition": "decompose",
    "fedgauge.measurement.design": "DesignOptions design",
    "fedgauge.measurement.designed": "Design",
    "fedgauge.measurement.divergence": "divergence",
    "fedgauge.measurement.lenses": "lenses",
    "fedgauge.measurement.measuring": "READINGS MeasureOptions measure",
    "fedgauge.measurement.noise": "noise",
    "fedgauge.measurement.passes": "Meter",
    "fedgauge.measurement.reading": "Measurement Reading",
    "fedgauge.measurement.trajectory": "near_convergence trajectory",
    "fedgauge.pace.adaptive": "Pace adaptive_pace",
    "fedgauge.pace.cost": "Cost",
    "fedgauge.planning.by_theory": "theory_plan",
    "fedgauge.planning.goal": "Goal",
    "fedgauge.planning.plan": "Plan",
    "fedgauge.planning.planner": "PlanOptions plan",
    "fedgauge.planning.theory_plan": "TheoryPlan",
    "fedgauge.runs.finished": "read_trace",
    "fedgauge.runs.reader": "FoundRun find_runs read_run",
    "fedgauge.simulation.loop": "InterruptedRunError simulate",
    "fedgauge.simulation.options": "Compute Keep Recording StopAt",
    "fedgauge.simulation.setup": "Setup steps_of_epochs",
    "fedgauge.theory": "COROLLARIES THEOREMS Inequality Theorem best_gamma best_local_steps corollary_rates",
    "fedgauge.theory.answer": "Answer bound",
    "fedgauge.values": "Bound Condition Constants Estimate Round Scope Source Subject Term Trace",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


if not TYPE_CHECKING:  # or every misspelt name would have a type

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that what needs no torch does not wait for it."""
        if name == "__version__":
            return version("fedgauge")
        if name not in _HOME:
            raise AttributeError(f"module 'fedgauge' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
