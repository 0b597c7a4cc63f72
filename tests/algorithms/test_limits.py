"""Each algorithm against a naive loop, and in the limits where it becomes another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algorithms.naive import naive_models
from tests.grouped import grouped
from tests.strategies import PARAMETERS, federations

from fedgauge.algorithms import ALGORITHMS, make_algorithm
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.loop import simulate
from fedgauge.values import Trace


def run(federation: QuadraticFederation, name: str, parameters: dict[str, Any], **how: Any) -> Trace:
    return simulate(
        federation, make_algorithm(name, **parameters), **grouped(**{"local_steps": 4, "rounds": 3, "seed": 1, **how})
    )


def test_every_algorithm_has_parameters_to_be_tested_with() -> None:
    assert set(PARAMETERS) == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=25)
@given(federation=federations(), data=st.data())
def test_agrees_with_a_naive_loop(name: str, federation: QuadraticFederation, data: st.DataObject) -> None:
    N = federation.num_workers
    steps = data.draw(st.lists(st.integers(1, 4), min_size=N, max_size=N))
    models = naive_models(federation, name, PARAMETERS[name], steps, rounds=3, seed=5)
    trace = run(federation, name, PARAMETERS[name], local_steps=steps, seed=5)
    scale = max(1.0, np.abs(models[-1]).max())
    # Sums are taken in another order than in the loops, so the two agree to rounding, not to the bit; and clipping adds
    # 1e-6 to the norm, as torch does.
    tolerance = 1e-5 if "clip" in PARAMETERS[name] else 1e-11
    np.testing.assert_allclose(trace.model / scale, models[-1] / scale, rtol=0, atol=tolerance)


LIMITS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fedprox with proximal 0": ("fedprox", {"proximal": 0.0}, {}),
    "momentum with beta 0": ("momentum", {"beta": 0.0}, {}),
    "slowmo with beta 0": ("slowmo", {"beta": 0.0}, {}),
    "fedavgm with beta 0": ("fedavgm", {"beta": 0.0}, {}),
    "fedavgm with Nesterov and beta 0": ("fedavgm", {"beta": 0.0, "nesterov": True}, {}),
    "fedavg with sgd": ("fedavg", {"optimiser": "sgd"}, {}),
    "fedavg with gradients that are never clipped": ("fedavg", {"clip": 1e6}, {}),
    "fedavg with a schedule that does not begin": ("fedavg", {"gamma_schedule": "step,every=100"}, {}),
    "fedavg with a schedule by local step": ("fedavg", {"gamma_schedule": "step,every=100,by=step"}, {}),
    "fednova with equal steps": ("fednova", {}, {}),
    "scaffold's first round": ("scaffold", {}, {"rounds": 1}),
    "minibatch with one gradient": ("minibatch", {}, {"local_steps": 1}),
}


@pytest.mark.parametrize("case", LIMITS)
@settings(max_examples=25)
@given(federation=federations(), eta=st.sampled_from([0.5, 1.0, 2.0]))
def test_is_fedavg_in_the_limit(case: str, federation: QuadraticFederation, eta: float) -> None:
    name, parameters, how = LIMITS[case]
    rates: dict[str, Any] = {"gamma": 0.1, "eta": eta}
    expected = run(federation, "fedavg", rates, **how)
    found = run(federation, name, {**rates, **parameters}, **how)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(found.model, expected.model, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_parameter_changes_something(name: str) -> None:
    federation = random_quadratics(4, 3, sigma2=0.1, seed=3)
    # Unequal steps, because FedNova differs from FedAvg only there.
    how = {"local_steps": [1, 2, 3, 4], "rounds": 4}
    base = run(federation, name, PARAMETERS[name], **how)
    for parameter, value in PARAMETERS[name].items():
        other = {True: False, "kept": "reset"}[value] if isinstance(value, bool | str) else value * 0.7
        changed = run(federation, name, {**PARAMETERS[name], parameter: other}, **how)
        assert not np.allclose(changed.model, base.model, rtol=1e-6), f"{parameter} changes nothing"


CHOICES: dict[str, dict[str, Any]] = {
    "local_steps": {"local_steps": 5},
    "seed": {"seed": 2},
    "sampling": {"participation": Participation("without-replacement", 2)},
    "own runs": {"participation": Participation("with-replacement", 12)},
    "shared runs": {"participation": Participation("with-replacement-shared", 12)},
    "weights": {"participation": Participation(weights=(1, 2, 3, 4))},
}


def test_every_choice_of_the_run_changes_something() -> None:
    federation = random_quadratics(4, 3, sigma2=0.1, seed=3)
    models = {"base": run(federation, "fedavg", PARAMETERS["fedavg"]).model}
    for case, how in CHOICES.items():
        models[case] = run(federation, "fedavg", PARAMETERS["fedavg"], **how).model
    assert len({model.tobytes() for model in models.values()}) == len(models)


def test_fednova_keeps_the_objective_where_fedavg_loses_it() -> None:
    # Common Hessian, no noise: FedNova finds x*, FedAvg favours the workers that take more steps.
    federation = random_quadratics(3, 2, hessian_spread=0.0, linear_spread=5.0, conditioning=1.0, seed=0)
    best, _ = federation.minimiser()
    assert best is not None
    how = {"local_steps": [1, 5, 20], "rounds": 400}
    rates = {"gamma": 0.01, "eta": 1.0}
    # With equal curvature 1 the fixed point of FedNova is off only by the differing contraction of the steps.
    nova = np.linalg.norm(run(federation, "fednova", rates, **how).model - best)
    avg = np.linalg.norm(run(federation, "fedavg", rates, **how).model - best)
    assert nova < avg / 5


def test_scaffold_corrects_the_drift_that_fedavg_keeps() -> None:
    federation = random_quadratics(5, 4, hessian_spread=0.8, linear_spread=10.0, seed=2)
    least = federation.minimiser()[1]
    how = {"local_steps": 10, "rounds": 600}
    rates = {"gamma": 0.1, "eta": 1.0}
    assert run(federation, "scaffold", rates, **how).losses[-1] - least < 1e-9
    assert run(federation, "fedavg", rates, **how).losses[-1] - least > 1e-3


def test_scaffold_under_sampling_keeps_its_control_the_mean_of_the_workers() -> None:
    # As its paper has it: the server's control moves by the participants' gains over all N workers, not over M.
    N, gamma, eta, steps, rounds = 5, 0.1, 0.8, 3, 6
    federation = random_quadratics(N, 3, hessian_spread=0.8, linear_spread=5.0, seed=7)
    who = Participation("without-replacement", 2)
    x, c, c_i = federation.first_model.copy(), np.zeros(3), np.zeros((N, 3))
    for r in range(rounds):
        workers = who.cohort(N, seed=4, round=r).workers
        ends = []
        for i in workers:
            y = x.copy()
            for _ in range(steps):
                y = y - gamma * (federation.hessians[i] @ y + federation.linear[i] - c_i[i] + c)
            ends.append(y)
        fresh = {i: c_i[i] - c + (x - y) / (steps * gamma) for i, y in zip(workers, ends, strict=True)}
        x = x - eta * np.mean([x - y for y in ends], axis=0)
        c = c + sum(fresh[i] - c_i[i] for i in workers) / N
        for i in workers:
            c_i[i] = fresh[i]
        np.testing.assert_allclose(c, c_i.mean(axis=0), atol=1e-12)
    rates = {"gamma": gamma, "eta": eta}
    trace = run(federation, "scaffold", rates, local_steps=steps, rounds=rounds, participation=who, seed=4)
    np.testing.assert_allclose(trace.model, x, rtol=0, atol=1e-11)
