"""One federation with one seed: the true slowdowns, and what every lens says at three places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.gauge.curves import BaseCurve, crossing
from fedgauge.measurement.gauge.gauge import gauge
from fedgauge.measurement.gauge.result import GaugeOptions
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.measurement.passes import Meter, Passes
from fedgauge.measurement.values import whole
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.setup import Setup
from fedgauge.simulation.workers import Lane
from fedgauge_wang2024.equal_zeta import PARTS, Bisection, pooled_models, with_kind, zeta_over
from fedgauge_wang2024.lens_reading import LENSES, lenses

PLACES = ("first", "along", "end")
"""Where lenses look: the first model, along the pooled run, and at its end."""
_SEEN = {"L_h": "L_h seen", "L_tilde": "L_tilde seen"}
_ALL = 10**6
_LABELS = tuple(name for name, lens in LENSES.items() if lens.needs == "labels")


class Base(NamedTuple):
    """The pooled run: the steps at which f was recorded, f there, and the states at some places."""

    steps: list[int]
    losses: list[float]
    states: dict[int, State]


def measure_cell(chosen: Mapping[str, Any], seed: int, data: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one federation with one seed.

    Args:
        chosen: the federation, as :class:`~fedgauge_wang2024.decisive.federations.Chosen` has it.
        seed: of the partition, the shift, the first model and the batches.
        data: the directory that holds the data sets.
        settings: of the source.
    """
    plain = Experiment.of({**settings["keys"], "seed": seed, **({} if data is None else {"data": data})})
    strength: float = chosen["strength"]
    found: dict[str, Any] = {}
    if chosen["zeta"] is not None:
        strength, found = _designed(plain, chosen, settings)
    experiment = plain if chosen["kind"] is None else with_kind(plain, chosen["kind"], strength)
    setup = prepare(experiment)
    places = [0, *(round(part * settings["steps"]) for part in PARTS), settings["steps"]]
    with Runner(setup) as runner:
        base = _pooled(runner, settings, places)
        slowdowns, goal = _slowdowns(runner, base, settings)
    models = [base.states[place].model for place in places]
    looked = _looked(setup, models, settings)
    gauged = _gauged(setup, settings)
    return {
        "federation": chosen["name"],
        "kind": chosen["kind"],
        "strength": strength,
        "seed": seed,
        "goal": goal,
        "first_loss": base.losses[0],
        "slowdown": slowdowns,
        **looked,
        "gauge": gauged,
        **found,
    }


def _designed(
    plain: Experiment, chosen: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The strength at which zeta_rms along the federation's own pooled run is the wanted one."""

    def zeta(strength: float) -> float:
        setup = prepare(with_kind(plain, chosen["kind"], strength))
        return zeta_over(setup, pooled_models(setup, settings["steps"]))

    match = Bisection(settings["zeta_tolerance"]).find(zeta, chosen["zeta"])
    return match.strength, {"designed": {"zeta": chosen["zeta"], "found": match.value, "reached": match.reached}}


def _pooled(runner: Runner, settings: Mapping[str, Any], places: Sequence[int]) -> Base:
    """The pooled run, with its states at some places; it is recorded less often than that of a gauge."""
    steps, every = settings["steps"], max(settings["steps"] // settings["records"], 1)
    state, taken, losses, states = runner.first_state(), [], [], {}
    for mark in sorted({*range(0, steps, every), *places, steps}):
        state = runner.advance(state, 1, mark - state.round)
        taken.append(mark)
        losses.append(runner.loss(state))
        if mark in places:
            states[mark] = state
    if not math.isfinite(losses[-1]):
        raise InputError("The pooled run diverges at this rate; choose a smaller gamma.")
    return Base(taken, losses, states)


def _slowdowns(runner: Runner, base: Base, settings: Mapping[str, Any]) -> tuple[dict[str, float | None], float]:
    """The slowdown of each I to the loss at which the pooled run ends; None where the run was given up."""
    steps = settings["steps"]
    goal = BaseCurve(base.steps, base.losses).loss_at(steps)
    reference = crossing(base.steps, base.losses, goal)
    found: dict[str, float | None] = {}
    for local_steps in settings["local_steps"]:
        every = max(steps // settings["records"] // local_steps, 1)
        state, taken, losses = runner.first_state(), [0], [base.losses[0]]
        while losses[-1] > goal and math.isfinite(losses[-1]) and taken[-1] < settings["cap"] * steps:
            state = runner.advance(state, local_steps, every)
            taken.append(taken[-1] + every * local_steps)
            losses.append(runner.loss(state))
        needed = crossing(taken, losses, goal) / reference
        found[str(local_steps)] = needed if needed <= settings["cap"] else None
    return found, goal


# -- lenses ------------------------------------------------------------------------------------------------------------


def _looked(setup: Setup, models: Sequence[torch.Tensor], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What every lens says at the three places; along the run it is the root mean square over three models."""
    each = [_at(setup, model, settings) for model in models]
    values = {"first": each[0], "end": each[-1], "along": _root_mean_square(each[1:-1])}
    bent = _fewer(setup, settings["hessian_examples"])
    middle = {"first": models[0], "along": models[len(models) // 2], "end": models[-1]}
    for place in settings["hessian_places"]:
        values[place] |= _bent(setup, bent, middle[place], settings, place in settings["delta_places"])
    for place in values.values():
        _add_products(place)
    always = _at_any_model(setup)
    return {"lenses": {name: values[name] for name in PLACES}, "labels": always}


def _root_mean_square(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    common = [name for name in each[0] if all(name in one for one in each)]
    return {name: float(np.sqrt(np.mean([one[name] ** 2 for one in each]))) for name in common}


def _at(setup: Setup, model: torch.Tensor, settings: Mapping[str, Any]) -> dict[str, float]:
    """The lenses at one model that need gradients or local models."""
    gamma = float(setup.algorithm.parameters["gamma"])
    chosen = [name for name, lens in LENSES.items() if lens.needs in ("gradients", "local models")]
    weights = setup.participation.weights
    with Meter(setup.federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
        found = lenses(meter, model, gamma=gamma, local_steps=settings["lens_steps"], only=chosen)
        values = {_SEEN.get(one.symbol, one.symbol): one.value for one in whole(found).estimates}
        values["first-order drift"] = _first_order(meter, model)
    return values


def _first_order(meter: Meter, model: torch.Tensor) -> float:
    """|sum_i w_i (H_i - H)(g_i - g)| / |g|: how the averaged gradient begins to turn when workers step apart."""
    _, gradient = meter.evaluate(model)
    rows = torch.cat(meter.ask("gradient passes", 1, _gradients, model))
    # The weighted rows sum to zero, so that H_i - H may be H_i.
    parts = meter.ask("Hessian passes", 1, Passes.contract, model, rows=rows - gradient)
    return float(sum(parts[1:], start=parts[0]).norm() / gradient.norm())


def _gradients(passes: Passes, lane: Lane, model: torch.Tensor) -> torch.Tensor:
    """Every worker's gradient, one row each."""
    rows = [
        passes.federation.gradients(model.expand(len(part.workers), -1), part.workers).double()
        for part, _ in lane.chunks(passes.chunk)
    ]
    return torch.cat(rows)


def _bent(
    setup: Setup,
    federation: SupervisedFederation,
    model: torch.Tensor,
    settings: Mapping[str, Any],
    delta: bool,
) -> dict[str, float]:
    """The lenses at one model that need Hessians."""
    weights, tolerance = setup.participation.weights, settings["tolerance"]
    with Meter(federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
        found = [*whole(curvature(meter, model, tolerance)).estimates]
        if delta:
            found += whole(lenses(meter, model, only=["delta"], tolerance=tolerance)).estimates
    return {one.symbol: one.value for one in found}


def _fewer(setup: Setup, examples: int | None) -> SupervisedFederation:
    """The same workers, each with some of its examples: Hessians over all of them may take too long."""
    whole_federation = setup.federation
    assert isinstance(whole_federation, SupervisedFederation)
    assert setup.dataset is not None
    assert setup.partition is not None
    if examples is None:
        return whole_federation
    streams, kept = Streams(setup.seed, Purpose.MEASURE), []
    for worker in range(setup.partition.num_workers):
        mine = setup.partition.worker(worker)
        kept.append(np.sort(streams.at(round=9, worker=worker).permutation(mine)[:examples]))
    inputs, labels = setup.dataset.train_inputs, setup.dataset.train_labels
    arrays = torch.from_numpy(np.array(inputs)), torch.from_numpy(np.array(labels))
    return SupervisedFederation(whole_federation.module, whole_federation.loss, arrays[0], arrays[1], kept)


def _add_products(values: dict[str, float]) -> None:
    """The terms that local steps add to the bounds: zeta L_h in Theorem 4.3, zeta L_tilde in those before it."""
    for name in ("L_h seen", "L_h", "L_tilde"):
        if name in values:
            values[f"zeta_rms · {name}"] = values["zeta_rms"] * values[name]


def _at_any_model(setup: Setup) -> dict[str, float]:
    """The distances between labels, which need no model."""
    assert setup.dataset is not None
    weights = setup.participation.weights
    with Meter(setup.federation, weights=weights, compute=setup.compute) as meter:
        labels = setup.dataset.train_labels
        found = lenses(meter, setup.first_model, partition=setup.partition, labels=labels, only=_LABELS)
    return {one.symbol: one.value for one in whole(found).estimates}


def _gauged(setup: Setup, settings: Mapping[str, Any]) -> dict[str, float]:
    """The slowdown by the gauge along the same way; where it has only a limit, the least that it does not exclude."""
    # The set-up's own rounds and local steps say nothing here.
    steps, budget = settings["steps"], settings["gauge_budget"] * settings["steps"]
    # All examples, whatever it takes: the truth is looked at with all of them too.
    options = GaugeOptions(steps=steps, local_steps=tuple(settings["local_steps"]), budget=budget, sample=_ALL)
    found = gauge(replace(setup, local_steps=1), options=options).efficiency[1:]
    known = {
        str(each.local_steps): 1 / max(each.high if each.limit else each.value, 1 / settings["cap"]) for each in found
    }
    # A number of local steps that the budget did not pay for is taken as the largest one that was measured.
    last = max(known.values(), default=1.0)
    return {str(local): min(known.get(str(local), last), settings["cap"]) for local in settings["local_steps"]}
