from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import data, federation, mlp, ragged
from tests.grouped import grouped
from tests.strategies import federations
from torch.nn import functional

from fedgauge.algorithms import fedavg, scaffold
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.measurement.divergence import ALONE, divergence
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.parts import find_outliers
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.values import Reading

pytestmark = pytest.mark.usefixtures("one_thread")
law = settings(max_examples=25)
points = st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).normal(size=5))


def measured(of: Any, model: Any = None, *, meter: Any = None, **how: Any) -> Reading:
    model = of.start(0) if model is None else torch.as_tensor(model)
    with Meter(of, **grouped(**{"processes": 1, **(meter or {})})) as opened:
        return divergence(opened, model, **how)


def values(reading: Reading) -> list[float]:
    return [estimate.value for estimate in reading.estimates]


@law
@given(of=federations(), point=points)
def test_quadratics_have_their_closed_form(of: QuadraticFederation, point: Any) -> None:
    point = point[: of.dim]
    each = of.zeta(point)[0]
    reading = measured(of, point)
    # Gradients are sums of numbers of the size of the linear parts, here up to about 100.
    np.testing.assert_allclose(reading.details["zeta of each worker"], each, atol=1e-9)
    np.testing.assert_allclose(values(reading), [each.max(), np.mean(each**2) ** 0.5], atol=1e-9)
    assert {estimate.kind for estimate in reading.estimates} == {"lower"}


@pytest.mark.parametrize("path", ["dense", "plain"])
def test_networks_agree_with_autograd_worker_by_worker(path: str) -> None:
    weights = (0.1, 0.1, 0.5, 0.2, 0.1)
    of = federation(mlp(dtype=torch.float64), path=path, dtype=torch.float64, l2=0.3)
    x, y = data(60, 6, dtype=torch.float64)
    rows = []
    for shard in ragged(60, 5):
        point = of.start(0).requires_grad_()
        held = torch.tensor(list(shard))
        outputs = torch.func.functional_call(of.module, of.unflatten(point), (x[held],))
        rows.append(torch.autograd.grad(functional.cross_entropy(outputs, y[held]) + 0.15 * point @ point, point)[0])
    mean = sum(w * row for w, row in zip(weights, rows, strict=True))
    each = [float((row - mean).norm()) for row in rows]
    reading = measured(of, meter={"weights": weights})
    assert values(reading) == pytest.approx([max(each), np.dot(weights, np.square(each)) ** 0.5])
    assert reading.details["zeta of each worker"] == pytest.approx(each)
    assert reading.details["gradient norm"] == pytest.approx(float(mean.norm()))  # type: ignore[union-attr]
    assert reading.details["worker"] == int(np.argmax(each))


def test_outliers_are_named_and_equal_workers_have_none() -> None:
    shift = np.zeros((9, 3))
    shift[4] = 50.0
    shift[:, 0] += np.linspace(-1, 1, 9)
    reading = measured(QuadraticFederation(np.stack([np.eye(3)] * 9), shift))
    assert reading.details["outliers"]["workers"] == [4]
    assert "MAD" in reading.details["outliers"]["rule"]
    assert find_outliers(np.array([0.3, 0.3, 0.3, 0.3 + 1e-9]))[1] == []


# -- at local models -------------------------------------------------------------------------------------------------


def local_truth(of: QuadraticFederation, weights: Any, gamma: float, steps: int, noise: Any = None) -> Any:
    """zeta_i^2 at each worker's own model after its steps, in plain numpy."""
    found = []
    A, b = np.tensordot(weights, of.hessians, 1), weights @ of.linear
    for i in range(of.num_workers):
        x = of.first_model.copy()
        for k in range(steps):
            x -= gamma * (of.hessians[i] @ x + of.linear[i] + (0.0 if noise is None else noise[i][k]))
        found.append(np.sum(((of.hessians[i] - A) @ x + of.linear[i] - b) ** 2))
    return np.array(found)


@pytest.mark.parametrize("sigma2", [0.0, 0.5])
def test_all_local_models_give_the_mean_exactly(sigma2: float) -> None:
    of = random_quadratics(11, 3, hessian_spread=0.5, sigma2=sigma2, seed=1)
    weights = np.arange(1.0, 12.0) / 66
    scale = (sigma2 / 3) ** 0.5
    streams = Streams(5, Purpose.NOISE)
    noise = [streams.at(2, i, 0).standard_normal((7, 3)) * scale for i in range(11)]
    truth = {k: local_truth(of, weights, 0.2, k, noise) for k in (0, 3, 7)}
    reading = measured(
        of,
        iterates=LocalSteps(fedavg(0.2), 7, round=2),
        at=(0, 3),
        workers=11,
        meter={"seed": 5, "weights": tuple(weights)},
    )
    found = {entry["local_steps"]: entry for entry in reading.details["local"]["at"]}
    assert list(found) == [0, 3, 7]
    for k, entry in found.items():
        np.testing.assert_allclose(np.square(entry["zeta of each worker"]), truth[k], atol=1e-12)
        np.testing.assert_allclose(list(entry["zeta2"].values()), weights @ truth[k])
    largest = max(weights @ squares for squares in truth.values())
    estimate = reading.constants["zeta_local"]
    assert estimate.kind == "lower"
    assert [estimate.value, estimate.low, estimate.high] == pytest.approx([largest**0.5] * 3)
    # Two passes for zeta; at each k one pass for each worker's f, one for their own, and their steps.
    assert estimate.cost == pytest.approx({"gradient passes": 3 * 12 + 10})


def test_some_local_models_are_unbiased_and_their_intervals_cover() -> None:
    of = random_quadratics(24, 2, hessian_spread=0.6, seed=3)
    weights = np.linspace(1, 2, 24) / 36
    truth = float(weights @ local_truth(of, weights, 0.2, 4))
    means, covered = [], 0
    for seed in range(300):
        reading = measured(
            of, iterates=LocalSteps(fedavg(0.2), 4), workers=12, meter={"seed": seed, "weights": tuple(weights)}
        )
        (entry,) = reading.details["local"]["at"]
        means.append(entry["zeta2"]["value"])
        covered += entry["zeta2"]["low"] <= truth <= entry["zeta2"]["high"]
    assert reading.constants["zeta_local"].kind == "sample"
    assert abs(np.mean(means) - truth) < 4 * np.std(means) / 300**0.5
    # Three standard deviations of a binomial around 95% of 300.
    assert 0.95 - 0.038 <= covered / 300 <= 0.95 + 0.038


def test_local_models_of_networks_and_of_algorithms_that_remember() -> None:
    of = federation(mlp(dtype=torch.float64), dtype=torch.float64)
    reading = measured(of, iterates=LocalSteps(scaffold(0.1), 3), workers=5)
    streams, everyone = Streams(0, Purpose.NOISE), np.arange(5)
    draws = of.draws(streams, 0, everyone, np.zeros_like(everyone), 3)
    # Before its first round SCAFFOLD's corrections are zero: its steps are those of SGD.
    models = of.local_sgd(of.start(0).expand(5, -1), everyone, draws, 0.1)
    own = of.gradients(models, everyone)
    squares = [float((own[i] - of.pooled(models[i], everyone, np.full(5, 0.2))[1]).square().sum()) for i in range(5)]
    assert reading.constants["zeta_local"].value == pytest.approx(np.mean(squares) ** 0.5)


# -- laws ------------------------------------------------------------------------------------------------------------


@law
@given(of=federations(), point=points, seed=st.integers(0, 99), scale=st.floats(0.1, 10))
def test_laws_of_quadratics(of: QuadraticFederation, point: Any, seed: int, scale: float) -> None:
    generator, point = np.random.default_rng(seed), point[: of.dim]
    iterates = LocalSteps(fedavg(0.1), 3)
    quiet = QuadraticFederation(of.hessians, of.linear)
    before = measured(quiet, point, iterates=iterates)
    order = generator.permutation(of.num_workers)
    turn, _ = np.linalg.qr(generator.normal(size=(of.dim, of.dim)))
    changed = {
        "permuted": (QuadraticFederation(of.hessians[order], of.linear[order]), point, iterates, 1.0),
        "doubled": (QuadraticFederation([*of.hessians] * 2, [*of.linear] * 2), point, iterates, 1.0),
        "rotated": (QuadraticFederation(turn @ of.hessians @ turn.T, of.linear @ turn.T), turn @ point, iterates, 1.0),
        # With the rate divided by c the local models stay where they were.
        "scaled": (
            QuadraticFederation(scale * of.hessians, scale * of.linear),
            point,
            LocalSteps(fedavg(0.1 / scale), 3),
            scale,
        ),
    }
    for name, (other, where, steps, factor) in changed.items():
        after = measured(other, where, iterates=steps, workers=12)
        np.testing.assert_allclose(values(after), factor * np.array(values(before)), atol=1e-8, err_msg=name)


@settings(max_examples=10)
@given(seed=st.integers(0, 99))
def test_laws_of_networks(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shards = [sorted(generator.choice(40, 8).tolist()) for _ in range(4)]
    order = generator.permutation(4)
    how: dict[str, Any] = {"module": mlp(dtype=torch.float64), "dtype": torch.float64, "samples": 40}
    before = values(measured(federation(shards=shards, **how)))
    for name, factor, change in (
        ("permuted", 1.0, {"shards": [shards[i] for i in order]}),
        ("doubled", 1.0, {"shards": shards * 2}),
        ("scaled", 3.0, {"shards": shards, "loss": lambda out, y: 3 * functional.cross_entropy(out, y)}),
    ):
        np.testing.assert_allclose(
            values(measured(federation(**how, **change))), factor * np.array(before), err_msg=name
        )


def test_processes_share_the_work_to_the_same_bits() -> None:
    of = federation(workers=7)
    steps = LocalSteps(fedavg(0.1), 2)
    one, two = (measured(of, iterates=steps, workers=3, meter={"processes": p, "chunk": 2}) for p in (1, 2))
    assert one.to_json() == two.to_json()
    assert Reading.from_json(one.to_json()).to_json() == one.to_json()


# -- budgets and mistakes --------------------------------------------------------------------------------------------


def test_one_worker_has_no_divergence() -> None:
    reading = measured(random_quadratics(1, 2), iterates=LocalSteps(fedavg(0.1), 2))
    assert values(reading) == [0, 0, 0]
    assert reading.notes == (ALONE,)


def test_a_budget_gives_what_it_pays_for() -> None:
    of, steps = random_quadratics(10, 2, hessian_spread=0.5), LocalSteps(fedavg(0.1), 0)
    reading = measured(of, iterates=steps, meter={"passes": 2})
    assert "zeta_local" not in reading.constants
    assert reading.notes == ("The 2 passes that were allowed are used up. There is no zeta_local.",)
    # Two for zeta, 0.8 for the gradients of eight workers, and then f at three of their models.
    reading = measured(of, iterates=steps, meter={"passes": 6})
    (entry,) = reading.details["local"]["at"]
    assert len(entry["workers"]) == 3
    assert reading.constants["zeta_local"].kind == "sample"
    reading = measured(of, iterates=steps, at=(1,), meter={"passes": 12})
    assert [entry["local_steps"] for entry in reading.details["local"]["at"]] == [0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"meter": {"passes": 1}}, "passes = 1 is too few for zeta at a model, which takes 2; allow more."),
        ({"meter": {"passes": 0}}, "passes must be a finite number above 0, not 0."),
        ({"model": torch.zeros(4)}, "The model has 4 parameters, but the federation's has 2; give one of that size."),
        ({"model": torch.tensor([0.0, float("nan")])}, "The model is not finite"),
        ({"workers": 0}, "workers must be a whole number of at least 1, not 0."),
        ({"at": (1,)}, "at needs iterates, whose local steps it counts; pass iterates as well, or leave out at."),
        (
            {"iterates": LocalSteps(fedavg(1e60), 9)},
            "Local models are not finite after 9 steps; measure with a smaller",
        ),
    ],
)
def test_mistakes_are_answered_in_one_sentence(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        measured(random_quadratics(3, 2, hessian_spread=0.5, seed=1), **how)
    assert said in str(error.value)
