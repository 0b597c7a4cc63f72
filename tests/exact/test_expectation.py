"""Exact expectations against enumeration, noiseless runs and simulated means."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.algorithms.naive import naive_models
from tests.strategies import PARAMETERS, federations

from fedgauge.algorithms import ALGORITHMS, fedavg, make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Recording
from fedgauge.theory.expectation import divergence, expect, local_maps, moments, states

EXACT = ("fedavg", "momentum", "minibatch", "slowmo", "fedavgm", "fedavgm without Nesterov")
SAMPLINGS = ("full", "with-replacement", "with-replacement-shared", "without-replacement")
WEIGHTS = {"equal": None, "unequal": (1.0, 4.0, 2.0)}


def made(name: str, **changed: Any) -> Algorithm:
    algorithm, _, without = name.partition(" ")
    options = {"nesterov": False} if without else {}
    return make_algorithm(algorithm, **{**PARAMETERS[algorithm], **options, **changed})


def participation(sampling: Any, weights: str = "equal", M: int = 2) -> Participation:
    return Participation(sampling, None if sampling == "full" else M, WEIGHTS[weights])


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=25)
@given(federation=federations(sigma2=0.0))
def test_without_noise_the_expectation_is_the_run(name: str, federation: QuadraticFederation) -> None:
    algorithm = made(name)
    trace = simulate(federation, algorithm, local_steps=3, rounds=4)
    exact = expect(federation, algorithm, local_steps=3, rounds=4, iterations=False)
    size = max(1.0, np.abs(trace.losses).max())
    np.testing.assert_allclose(np.array(exact.loss) / size, trace.losses / size, rtol=0, atol=1e-11)
    np.testing.assert_allclose(exact.grad2, trace.grad2, rtol=1e-9, atol=1e-9 * trace.grad2.max())
    assert np.abs(exact.covariance).max() == 0


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("sampling", ["with-replacement", "with-replacement-shared", "without-replacement"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_sampling_agrees_with_all_cohorts_enumerated(name: str, sampling: str, weights: str) -> None:
    N, M, rounds, steps = 3, 2, 2, 3
    federation = random_quadratics(N, 2, hessian_spread=0.9, linear_spread=3.0, seed=1)
    algorithm = made(name)
    who = participation(sampling, weights, M)
    w = who.objective(N)
    last = local_maps(federation, algorithm, steps)[-1]
    size = last.t.shape[1]
    rates = np.ones(size)
    rates[:2] = algorithm.parameters["eta"]

    def following(z: Any, change: Any) -> Any:
        """The server's step as it is written in the algorithm, on its own state."""
        if not algorithm.init(torch.zeros(2)) or name == "momentum":
            return z + rates * change
        mean = {"change": torch.from_numpy(-change[:2])}
        x, server = algorithm.update(torch.from_numpy(z[:2]), {"u": torch.from_numpy(z[2:])}, mean, 1.0)
        return np.concatenate([x.numpy(), server["u"].numpy()])

    if sampling == "without-replacement":
        cohorts = list(itertools.permutations(range(N), M))
    else:
        cohorts = list(itertools.product(range(N), repeat=M))
    outcomes = [np.concatenate([federation.first_model, np.zeros(size - 2)])]
    for _ in range(rounds):
        outcomes = [
            following(z, sum(N * w[i] / M * (last.T[i] @ z + last.t[i] - z) for i in cohort))
            for z in outcomes
            for cohort in cohorts
        ]
    points = np.array(outcomes)[:, :2]
    exact = expect(federation, algorithm, local_steps=steps, rounds=rounds, participation=who, iterations=False)
    A, b = np.tensordot(w, federation.hessians, 1), w @ federation.linear
    np.testing.assert_allclose(exact.mean, points.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(exact.covariance, np.cov(points.T, bias=True), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(exact.grad2[-1], ((points @ A + b) ** 2).sum(axis=1).mean(), rtol=1e-12)


# Runs take time: with momentum on the server, the noise is checked once, and the sampling by the enumeration above.
SIMULATED = [(name, sampling) for name in EXACT[:3] for sampling in SAMPLINGS]
SIMULATED += [("fedavgm", "without-replacement"), ("slowmo", "full")]


@pytest.mark.parametrize(("name", "sampling"), SIMULATED)
def test_simulated_means_agree_with_the_expectation(name: str, sampling: str) -> None:
    # 400 runs; every mean must lie within 5 standard errors of the exact value. For 80 comparisons that are true,
    # the chance that any fails is below 1e-4, and the seeds are fixed.
    runs, rounds, steps = 400, 3, 3
    federation = random_quadratics(3, 2, hessian_spread=0.9, linear_spread=3.0, sigma2=4.0, seed=2)
    algorithm = made(name)
    who = participation(sampling, "unequal")
    traces = [
        simulate(
            federation,
            algorithm,
            local_steps=steps,
            rounds=rounds,
            participation=who,
            seed=seed,
            record=Recording(watch=False),
        )
        for seed in range(runs)
    ]
    exact = expect(federation, algorithm, local_steps=steps, rounds=rounds, participation=who, iterations=False)
    for simulated, expected in (
        (np.array([trace.losses for trace in traces]), exact.loss),
        (np.array([trace.grad2 for trace in traces]), exact.grad2),
    ):
        error = simulated.std(axis=0, ddof=1) / runs**0.5
        assert (np.abs(simulated.mean(axis=0) - expected) <= 5 * error + 1e-12 * np.abs(expected)).all()
    models = np.array([trace.model for trace in traces])
    np.testing.assert_allclose(models.mean(axis=0), exact.mean, atol=5 * models.std() / runs**0.5)
    # A sample covariance of 400 draws has a relative error of about sqrt(2/400) = 7% on the diagonal.
    np.testing.assert_allclose(
        np.cov(models.T), exact.covariance, atol=5 * (2 / runs) ** 0.5 * np.diag(exact.covariance).max()
    )


@pytest.mark.parametrize("name", ["fedavg", "momentum"])
def test_iterations_pass_through_the_averaged_models(name: str) -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.9, seed=3)
    parameters = {**PARAMETERS[name], "eta": 1.0}
    algorithm = make_algorithm(name, **parameters)
    points = list(moments(federation, algorithm, local_steps=3, rounds=2, iterations=True))
    assert [(p.round, p.step) for p in points] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    # Within the first round, the average after k steps is where a run with I = k ends its round.
    for k in (1, 2, 3):
        naive = naive_models(federation, name, parameters, [k] * 4, rounds=1, seed=0)[-1]
        np.testing.assert_allclose(points[k].mean, naive, rtol=1e-12)
    naive = naive_models(federation, name, parameters, [3] * 4, rounds=2, seed=0)[-1]
    np.testing.assert_allclose(points[-1].mean, naive, rtol=1e-12)


def test_noise_within_a_round_averages_over_the_workers() -> None:
    # One step from a fixed model: the covariance is gamma^2 sigma^2 / (d N) in every direction.
    federation = random_quadratics(5, 2, sigma2=3.0, seed=0)
    point = list(moments(federation, make_algorithm("fedavg", gamma=0.1), local_steps=2, rounds=1, iterations=True))[1]
    np.testing.assert_allclose(point.covariance, np.eye(2) * 0.01 * 3 / (2 * 5), rtol=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_noise_of_a_round_is_that_of_its_runs(sampling: str, weights: str) -> None:
    # Workers without curvature that agree: only the noise of the runs is left, and each cohort weighs its runs.
    N, M = 3, 2
    federation = QuadraticFederation(np.zeros((N, 2, 2)), np.zeros((N, 2)), sigma2=4.0)
    who = participation(sampling, weights, M)
    share = N * who.objective(N) / (N if sampling == "full" else M)
    if sampling == "full":
        squares = [float((share**2).sum())]
    elif sampling == "without-replacement":
        squares = [sum(share[i] ** 2 for i in cohort) for cohort in itertools.permutations(range(N), M)]
    else:
        power = 2 if sampling.endswith("shared") else 1  # a shared run counts as often as it was drawn
        cohorts = [Counter(cohort) for cohort in itertools.product(range(N), repeat=M)]
        squares = [sum(times**power * share[i] ** 2 for i, times in cohort.items()) for cohort in cohorts]
    for name, noise in (("fedavg", 2 * 0.01), ("minibatch", 0.01 / 2)):  # two steps add up, a batch of two averages
        algorithm = make_algorithm(name, gamma=0.1)
        exact = expect(federation, algorithm, local_steps=2, rounds=1, participation=who)
        np.testing.assert_allclose(exact.covariance, np.eye(2) * 4 / 2 * noise * np.mean(squares), rtol=1e-12)


def test_momentum_counts_iterations_and_the_others_rounds() -> None:
    federation = random_quadratics(2, 2)
    lengths = {
        name: len(expect(federation, make_algorithm(name, gamma=0.1), local_steps=4, rounds=3).grad2)
        for name in ("fedavg", "momentum", "minibatch", "fedavgm", "slowmo")
    }
    assert lengths == {"fedavg": 4, "momentum": 13, "minibatch": 4, "fedavgm": 4, "slowmo": 4}


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - set(EXACT) - {"diloco"}))
def test_algorithms_without_expectations_say_so(name: str) -> None:
    with pytest.raises(InputError, match="no exact expectations for"):
        expect(random_quadratics(2, 2), make_algorithm(name, gamma=0.1), local_steps=1, rounds=1)


@pytest.mark.parametrize("options", [{"local_momentum": 0.5}, {"gamma_schedule": "step,every=3"}])
def test_local_optimisers_and_schedules_are_refused(options: dict[str, Any]) -> None:
    federation = random_quadratics(2, 2)
    for name in ("fedavg", "fedavgm", "diloco"):
        with pytest.raises(InputError, match="plain local SGD with constant rates"):
            expect(
                federation,
                make_algorithm(name, gamma=0.1, **({} if name == "diloco" else options)),
                local_steps=1,
                rounds=1,
            )


def test_a_diverging_expectation_grows_without_a_warning() -> None:
    exact = expect(random_quadratics(2, 2), make_algorithm("fedavg", gamma=100.0), local_steps=50, rounds=50)
    assert not np.isfinite(exact.loss[-1])


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_states_are_the_moments_of_all_rounds(name: str, sampling: str) -> None:
    federation = random_quadratics(3, 2, hessian_spread=0.9, sigma2=1.0, seed=2)
    algorithm, who = made(name), participation(sampling)
    run = states(federation, algorithm, local_steps=3, rounds=4, participation=who)
    single = list(moments(federation, algorithm, local_steps=3, rounds=4, participation=who))
    np.testing.assert_array_equal(run.mean[:, :2], [point.mean for point in single])
    np.testing.assert_array_equal(run.covariance[:, :2, :2], [point.covariance for point in single])


def local_divergence(federation: QuadraticFederation, beta: float, runs: int, sigma: float) -> Any:
    """Mean over workers and runs of |grad F_i - grad f|^2 at the local models, by the algorithm as it is written."""
    A, b, N, d = federation.hessians, federation.linear, federation.num_workers, federation.dim
    generator = np.random.default_rng(0)
    x, u = np.tile(federation.first_model, (runs, 1)), np.zeros((runs, d))
    found = np.zeros((4, 3))
    for r in range(4):
        xs, us = np.tile(x, (N, 1, 1)), np.tile(u, (N, 1, 1))
        for k in range(3):
            for i in range(N):
                gap = xs[i] @ (A[i] - A.mean(axis=0)) + b[i] - b.mean(axis=0)
                found[r, k] += np.mean(np.sum(gap**2, axis=1)) / N
                g = xs[i] @ A[i] + b[i] + sigma / d**0.5 * generator.standard_normal((runs, d))
                us[i] = beta * us[i] + g
                xs[i] = xs[i] - 0.3 * us[i]
        x, u = xs.mean(axis=0), us.mean(axis=0)
    return found


@pytest.mark.parametrize("beta", [0.0, 0.6])
def test_divergence_is_taken_at_the_workers_own_models(beta: float) -> None:
    name, parameters = ("momentum", {"gamma": 0.3, "beta": beta}) if beta else ("fedavg", {"gamma": 0.3})
    for sigma, runs, near in ((0.0, 1, 1e-12), (2.0, 20_000, 0.04)):
        federation = random_quadratics(3, 2, hessian_spread=0.9, sigma2=sigma**2, seed=4)
        run = states(federation, make_algorithm(name, **parameters), local_steps=3, rounds=4)
        naive = local_divergence(federation, beta, runs, sigma)
        np.testing.assert_allclose(divergence(federation, run), naive, rtol=near)


def test_divergence_at_the_global_models_is_the_federations_zeta() -> None:
    federation = random_quadratics(4, 3, seed=1)
    run = states(federation, make_algorithm("fedavg", gamma=0.1), local_steps=2, rounds=5)
    zeta = federation.zeta(run.mean[:-1])
    np.testing.assert_allclose(divergence(federation, run)[:, 0], np.mean(zeta**2, axis=1), rtol=1e-12)


def test_an_algorithm_with_a_function_of_ones_own_is_refused() -> None:
    changed = dataclasses.replace(fedavg(gamma=0.1), update=lambda model, server, mean, fraction: (model, server))
    with pytest.raises(InputError, match="this one has other functions; simulate it instead"):
        expect(random_quadratics(3, 2), changed, local_steps=2, rounds=2)
