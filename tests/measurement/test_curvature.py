"""Curvature: exact on quadratics, equal to dense Hessians and curvlinops on networks, with laws that all obey."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import federation as network
from tests.federation.networks import mlp
from tests.grouped import grouped
from tests.strategies import federations

from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement import passes as meters
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.values import Reading
from fedgauge.simulation.options import Compute

pytestmark = pytest.mark.usefixtures("one_thread")
SYMBOLS = ("L_g", "L_h", "L_tilde")


def measured(of: Federation, model: torch.Tensor | None = None, **options: Any) -> Reading:
    with Meter(of, **grouped(**{"processes": 1, **options})) as meter:
        return curvature(meter, of.start(0) if model is None else model)


def values(reading: Reading) -> dict[str, float]:
    return {name: reading.constants[name].value for name in SYMBOLS}


def off_by(found: dict[str, float], wanted: dict[str, float]) -> float:
    """The largest difference, as a part of L_tilde: where Hessians agree, L_h is zero to rounding."""
    return max(abs(found[name] - wanted[name]) for name in SYMBOLS) / max(wanted["L_tilde"], 1e-300)


@settings(max_examples=40)
@given(federations())
def test_on_quadratics_it_is_exact(of: QuadraticFederation) -> None:
    exact = {name: of.constants()[name].value for name in SYMBOLS}
    found = measured(of)
    assert off_by(values(found), exact) < 1e-8
    for name in SYMBOLS:
        estimate = found.constants[name]
        assert estimate.kind == "lower"
        assert estimate.high >= exact[name] * (1 - 1e-8) - 1e-10 * exact["L_tilde"]
    assert exact["L_h"] <= exact["L_tilde"] * (1 + 1e-12)
    assert exact["L_g"] <= exact["L_tilde"] * (1 + 1e-12)


@settings(max_examples=5)
@given(federations(dim=90))
def test_on_large_quadratics_lanczos_is_exact(of: QuadraticFederation) -> None:
    assert off_by(values(measured(of)), {name: of.constants()[name].value for name in SYMBOLS}) < 1e-8


@settings(max_examples=25)
@given(federations(num_workers=4, hessian_spread=1.0))
def test_the_worst_directions_attain_the_constants(of: QuadraticFederation) -> None:
    reading = measured(of)
    for name in SYMBOLS:
        # Differences of gradients at a distance of 1e-8 have seven digits.
        assert reading.details["attained"][name] == pytest.approx(values(reading)[name], rel=1e-5)


def test_equal_hessians_do_not_deviate_however_far_the_gradients_are_apart() -> None:
    of = random_quadratics(5, 80, hessian_spread=0.0, linear_spread=1e6)
    assert of.zeta(of.first_model).max() > 1e5
    reading = measured(of)
    assert values(reading)["L_h"] == 0.0
    assert "L_h" not in reading.details["attained"]


@pytest.mark.parametrize("path", ["dense", "plain"])
def test_on_a_network_it_agrees_with_dense_hessians(path: str) -> None:
    of = double(path)
    model = of.start(0)
    dense = hessians(of, model)
    mean = dense.mean(axis=0)
    off = dense - mean
    wanted = {
        "L_g": np.abs(np.linalg.eigvalsh(mean)).max(),
        "L_h": np.linalg.eigvalsh((off @ off).mean(axis=0))[-1] ** 0.5,
        "L_tilde": np.abs(np.linalg.eigvalsh(dense)).max(),
    }
    reading = measured(of, model)
    assert off_by(values(reading), wanted) < 1e-6
    for name in SYMBOLS:
        assert reading.details["attained"][name] == pytest.approx(wanted[name], rel=1e-3)  # the network is not linear


# What curvlinops calls of torch is deprecated there.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_on_a_network_it_agrees_with_curvlinops() -> None:
    from curvlinops import HessianLinearOperator
    from scipy.sparse.linalg import eigsh

    of = double("dense")
    module = of.module
    parameters = list(module.parameters())
    shards = [of.shard(worker) for worker in range(of.num_workers)]
    loss = torch.nn.CrossEntropyLoss()
    operators = [HessianLinearOperator(module, loss, parameters, [shard]) for shard in shards]
    found = [abs(eigsh(operator.to_scipy(), k=1, which="LM", tol=1e-8)[0][0]) for operator in operators]
    each = measured(of, of.start(0)).details["L_tilde"]["of each worker"]
    np.testing.assert_allclose(each, found, rtol=1e-4)


def test_processes_chunks_and_recomputed_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    of = random_quadratics(7, 70, hessian_spread=1.0)
    plain = values(measured(of))
    assert off_by(values(measured(of, chunk=2)), plain) < 1e-9
    with Meter(of, compute=Compute(processes=2)) as meter:
        assert values(curvature(meter, of.start(0))) == plain
        two = meter.cost["Hessian passes"]
    monkeypatch.setattr(meters, "_ROWS_BYTES", 0)
    with Meter(of, compute=Compute(processes=1)) as meter:
        again = curvature(meter, of.start(0))
        assert off_by(values(again), plain) < 1e-9
        assert meter.cost["Hessian passes"] > two  # three passes a product instead of two
    assert "L_h" not in again.details["attained"]


@settings(max_examples=20)
@given(of=federations(num_workers=3, dim=4), order=st.permutations(range(3)), times=st.floats(0.1, 10))
def test_laws(of: QuadraticFederation, order: list[int], times: float) -> None:
    plain = values(measured(of))
    A, b = of.hessians, of.linear
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    assert off_by(values(measured(QuadraticFederation(A[order], b[order]))), plain) < 1e-8
    assert off_by(values(measured(QuadraticFederation(np.repeat(A, 2, axis=0), np.repeat(b, 2, axis=0)))), plain) < 1e-8
    assert off_by(values(measured(QuadraticFederation(turn @ A @ turn.T, b @ turn.T))), plain) < 1e-8
    scaled = {name: times * value for name, value in plain.items()}
    assert off_by(values(measured(QuadraticFederation(times * A, times * b))), scaled) < 1e-8


def test_weights_are_those_of_the_objective() -> None:
    of = random_quadratics(3, 4, hessian_spread=1.0)
    # A worker that counts twice is two workers.
    twice = QuadraticFederation(of.hessians[[0, 0, 1, 2]], of.linear[[0, 0, 1, 2]])
    assert off_by(values(measured(of, weights=(2.0, 1.0, 1.0))), values(measured(twice))) < 1e-8


def double(path: str) -> SupervisedFederation:
    """A small network in float64."""
    return network(mlp(width=12, dtype=torch.float64), dtype=torch.float64, workers=4, path=path)


def hessians(of: SupervisedFederation, model: torch.Tensor) -> Any:
    """Each worker's Hessian, whole, by torch's own functional derivative."""
    found = []
    for worker in range(of.num_workers):
        x, y = of.shard(worker)

        def loss(flat: torch.Tensor, x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            return of.loss(torch.func.functional_call(of.module, of.unflatten(flat), (x,)), y)

        hessian = torch.autograd.functional.hessian(loss, model)  # type: ignore[no-untyped-call]
        found.append(hessian.numpy())
    return np.stack(found)
