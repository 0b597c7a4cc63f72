"""The left-hand sides against the public expectations and the round loop."""

from __future__ import annotations

import numpy as np
import pytest

from fedgauge.algorithms import fedadam, make_algorithm
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.loop import simulate
from fedgauge.theory import THEOREMS
from fedgauge.theory.expectation import expect
from fedgauge_verification.exact import measure, measure_adam
from fedgauge_verification.problem import QuadraticProblem, change, draw, is_simulated, named, starting_at


def problem(sigma2: float = 2.0) -> QuadraticProblem:
    federation = random_quadratics(4, 3, hessian_spread=0.8, linear_spread=3.0, sigma2=sigma2, seed=3)
    moved = starting_at(federation, federation.first_model)
    return QuadraticProblem(moved, I=4, R=6, M=3, eta=1.0, beta=0.6, tau=0.3, beta2=0.9)


def test_a_counterexample_starts_where_its_theorem_says() -> None:
    stiff = named(THEOREMS["strongly-convex"])
    assert stiff is not None
    # f = (x1^2 + x2^2/100)/2 from (1, 0), moved so that it starts at the origin
    assert stiff.federation.linear.tolist() == [[1.0, 0.0]]
    assert (stiff.I, stiff.R, stiff.eta) == (1, 1, 15.0)
    assert named(THEOREMS["nonconvex"]) is None


@pytest.mark.parametrize("name", THEOREMS)
def test_measures_agree_with_the_expectations(name: str) -> None:
    theorem, p, gamma = THEOREMS[name], problem(), 0.07
    if is_simulated(theorem):
        return
    steps = name in ("equal-hessians", "quadratic", "momentum")
    found = measure(p, theorem, gamma)
    parameters = {"gamma": gamma, **({"beta": p.beta} if name == "momentum" else {})}
    who = Participation() if theorem.sampling == "full" else Participation(theorem.sampling, p.M)
    algorithm = make_algorithm(theorem.algorithm, **parameters)

    def exact(iterations: bool) -> tuple[np.ndarray, np.ndarray]:
        e = expect(p.federation, algorithm, local_steps=p.I, rounds=p.R, participation=who, iterations=iterations)
        return np.array(e.grad2), np.array(e.loss)

    grad2, loss = exact(False)
    np.testing.assert_allclose(found.round_grad2, grad2[:-1], rtol=1e-11)
    np.testing.assert_allclose(found.step_grad2, exact(steps)[0][:-1], rtol=1e-11)
    np.testing.assert_allclose(found.excess, loss - p.federation.minimiser()[1], rtol=1e-9)
    if name != "momentum":
        assert found.descent == pytest.approx(loss[0] - loss[-1], rel=1e-9)
    assert abs(found.descent) <= found.descent_size


def test_momentum_descends_to_the_point_that_its_proof_follows() -> None:
    p, gamma = problem(sigma2=0.0), 0.05
    A, b = p.federation.hessians, p.federation.linear
    x, u = np.zeros(3), np.zeros(3)
    for _ in range(p.R):
        xs, us = np.tile(x, (4, 1)), np.tile(u, (4, 1))
        for _ in range(p.I):
            us = p.beta * us + np.einsum("nij,nj->ni", A, xs) + b
            xs = xs - gamma * us
        before, x, u = xs.mean(axis=0) + gamma * us.mean(axis=0), xs.mean(axis=0), us.mean(axis=0)
    z = (x - p.beta * before) / (1 - p.beta)
    loss = z @ A.mean(axis=0) @ z / 2 + b.mean(axis=0) @ z
    assert measure(p, THEOREMS["momentum"], gamma).descent == pytest.approx(-loss, rel=1e-10)


def test_fedadam_without_noise_is_the_simulated_run() -> None:
    p = problem(sigma2=0.0)
    trace = simulate(p.federation, fedadam(0.05, p.eta, p.tau, beta1=0.0, beta2=p.beta2), local_steps=p.I, rounds=p.R)
    found = measure_adam(p, 0.05)
    np.testing.assert_allclose(found.round_grad2, trace.grad2[:-1], rtol=1e-10)
    assert np.abs(p.federation.linear).max() <= found.G


def test_fedadam_with_noise_covers_a_mean_of_simulated_runs() -> None:
    p = problem(sigma2=0.5)
    algorithm = fedadam(0.05, p.eta, p.tau, beta1=0.0, beta2=p.beta2)
    runs = [simulate(p.federation, algorithm, local_steps=p.I, rounds=p.R, seed=s).grad2[:-1] for s in range(100)]
    found = measure_adam(p, 0.05, runs=4000)
    error = np.std(runs, axis=0) / 10
    assert np.all(np.abs(np.mean(runs, axis=0) - found.round_grad2) <= 5 * error + 1e-9)
    assert np.all(found.low_grad2[1:] < found.round_grad2[1:])


def test_without_noise_the_smallest_zeta_is_at_the_local_models() -> None:
    federation = QuadraticFederation([[[1.0]], [[3.0]]], [[-1.0], [5.0]])
    found = measure(QuadraticProblem(federation, I=2, R=1), THEOREMS["nonconvex"], 0.1)
    at_start, after_step = 9.0, ((-0.1 - 3) ** 2 + (-0.5 + 3) ** 2) / 2
    assert found.zeta2 == pytest.approx(max(at_start, after_step))
    at_rounds = measure(QuadraticProblem(federation, I=2, R=1), THEOREMS["quadratic"], 0.1)
    assert at_rounds.zeta2 == pytest.approx(at_start)


@pytest.mark.parametrize("name", THEOREMS)
def test_draws_and_changes_stay_within_what_the_theorem_covers(name: str) -> None:
    theorem, generator = THEOREMS[name], np.random.default_rng(0)
    for _ in range(30):
        p = draw(theorem, generator)
        for _ in range(5):
            p = change(p, theorem, generator)
        assert 1 <= p.M <= p.federation.num_workers
        assert 0 < p.share <= 1
        assert theorem.eta == "free" or p.eta == 1
        assert name != "equal-hessians" or p.federation.constants()["L_h"].value <= 1e-12
        assert not p.federation.first_model.any()
