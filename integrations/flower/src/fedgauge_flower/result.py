"""The constants measured in a run over Flower, in the form that reports, bounds and plans read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError
from fedgauge.base.files import write_json
from fedgauge.federation.participation import Participation
from fedgauge.measurement.trajectory import readings
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.simulation.runs.manifest import add_to_manifest
from fedgauge.simulation.runs.reader import read_json, read_trace
from fedgauge.values import Estimate, Scope, Trace, initial_gap
from fedgauge_flower.noise import Noise
from fedgauge_planning.by_theory import theory_plan
from fedgauge_planning.goal import Goal
from fedgauge_planning.theory_result import TheoryPlan

_NOISE = (
    "How far a stochastic gradient is from its mean, at the last model and along the run, for the batch size in use."
)


def measurement_of(
    trace: Trace,
    noise2: Sequence[Mapping[str, Any]],
    num_workers: int,
    weights: npt.NDArray[np.float64] | None = None,
) -> Measurement:
    """The constants of a run, as a measurement.

    Args:
        trace: the run.
        noise2: the variances of each recorded round, as ``{"round": r, "sigma2": {worker: variance}}``.
        num_workers: the number N of workers.
        weights: the weights w_i of the workers in the objective; equal by default.
    """
    # A round whose models are no longer finite tells us nothing about a constant.
    finite = tuple(record for record in trace.rounds if np.isfinite(record.spread or 0.0))
    trace = replace(trace, rounds=finite)
    settings = {name: trace.settings.get(name) for name in ("algorithm", "local_steps")}
    found = list(readings([trace], settings))
    if noise2:
        found.append(_noise(noise2, weights))
    if trace.rounds and trace.rounds[0].round == 0:
        known = trace.settings
        scope = Scope(known.get("federation"), known.get("start"), None if "start" in known else known.get("seed"))
        gap = replace(initial_gap(trace.rounds[0].loss, 0.0), scope=scope)
        found.append(Reading("first model", "How far f has to fall, as a loss is at least 0.", (gap,)))
    last = trace.rounds[-1] if trace.rounds else None
    point = {"run": "this run", "round": trace.stopped_at}
    if last is not None:
        point |= {"loss": last.loss, "grad2": last.grad2}
    passes = 3.0 * sum(record.spread is not None for record in trace.rounds)
    return Measurement(
        {**trace.settings, "num_workers": num_workers}, point, tuple(found), True, {"gradient passes": passes}
    )


def _noise(noise2: Sequence[Mapping[str, Any]], weights: npt.NDArray[np.float64] | None) -> Reading:
    rounds = []
    for entry in noise2:
        each = {int(worker): float(value) for worker, value in entry["sigma2"].items()}
        shares = np.array([1.0 if weights is None else weights[worker] for worker in each])
        mean = float(np.average(list(each.values()), weights=shares))
        rounds.append({"round": entry["round"], "sigma2": max(each.values()), "sigma2_mean": mean, "each": each})
    method = f"every sample of every worker, at the model of round {rounds[-1]['round']}"
    estimates = tuple(
        # The assumption is about all models, and this is only one of them.
        Estimate(symbol, root, root, root, "lower", method)
        for symbol, root in (("sigma", rounds[-1]["sigma2"] ** 0.5), ("sigma_rms", rounds[-1]["sigma2_mean"] ** 0.5))
    )
    details = {"rounds": [{**entry, "each": {str(k): v for k, v in entry["each"].items()}} for entry in rounds]}
    return Reading("noise", _NOISE, estimates, details)


def write_measurement(
    place: Path,
    trace: Trace,
    noise: Noise,
    num_workers: int,
    weights: npt.NDArray[np.float64] | None = None,
) -> None:
    """Write ``measure.json`` into a run's directory, where reports and ``--values`` find it."""
    write_json(place / "measure.json", measurement_of(trace, noise.along(trace), num_workers, weights).to_json())
    add_to_manifest(place, "measure.json")


def plan_run(run: str | Path, *, goal: str, cost: str) -> TheoryPlan:
    """Plan by theory for the federation of a run over Flower, from the constants measured in it; no data is needed.

    The plan is written to ``theory.json`` in the run's directory, and ``fedgauge report`` shows it. The constants
    measured along a run are only lower bounds of the true ones, so that the plan is a plug-in and certifies nothing.

    Args:
        run: the directory of a run over Flower.
        goal: the goal to reach, such as ``grad2=0.01``.
        cost: the cost of a round, such as ``cross-silo``.
    """
    place = Path(run)
    remedy = "name the directory of a finished run over Flower"
    measured = Measurement.from_json(read_json(place / "measure.json", remedy))
    trace = read_trace(place)
    settings = trace.settings
    price = Cost.parse(cost)
    size = 2.0 * trace.model.nbytes if price.bytes is None else price.bytes
    if price.step is None:
        raise InputError(
            f"cost must say how long a local step takes, which {cost} does not; add the seconds, such as step=0.01."
        )
    rates = settings["algorithm"]
    steps = settings["local_steps"]
    eta = float(rates.get("eta", 1.0))
    practice = (steps, float(rates["gamma"]), eta) if isinstance(steps, int) and "gamma" in rates else None
    plan = theory_plan(
        measured.constants,
        goal=Goal.parse(goal, None),
        cost=replace(price, bytes=float(size)),
        num_workers=int(measured.settings["num_workers"]),
        participants=Participation.from_json(settings["participation"]),
        eta=eta,
        practice=practice,
    )
    write_json(place / "theory.json", plan.to_json())
    return plan
