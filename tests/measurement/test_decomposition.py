"""Where zeta and L_h come from: shares that add up, against dense matrices, laws, and who stands out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import federation as network
from tests.federation.networks import mlp
from tests.grouped import grouped
from tests.measurement.test_curvature import hessians
from tests.strategies import federations

from fedgauge.base.errors import InputError
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.decomposition import decompose
from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.options import Compute

pytestmark = pytest.mark.usefixtures("one_thread")


def parts(of: Federation, model: torch.Tensor | None = None, **options: Any) -> Decomposition:
    with Meter(of, **grouped(**{"processes": 1, **options})) as meter:
        return decompose(meter, of.start(0) if model is None else model)


@settings(max_examples=25)
@given(federations(num_workers=4, hessian_spread=1.0, linear_spread=1.0))
def test_shares_add_up_to_the_constants(of: QuadraticFederation) -> None:
    found = parts(of)
    exact = of.constants()
    assert found["L_h"].total ** 0.5 == pytest.approx(exact["L_h"].value, rel=1e-8)
    assert found["zeta_rms"].total == pytest.approx((of.zeta(of.first_model) ** 2).mean(), rel=1e-9, abs=1e-18)
    for part in found.parts:
        assert part.by_worker.sum() == pytest.approx(1, abs=1e-12)
        assert part.by_block.sum() == pytest.approx(1, abs=1e-12)
        assert part.blocks == ("model",)


def test_on_a_network_they_are_blocks_of_dense_hessians() -> None:
    of = network(mlp(width=4, dtype=torch.float64), dtype=torch.float64, workers=4)
    model, weights = of.start(0), np.array([0.4, 0.3, 0.2, 0.1])
    found = parts(of, model, weights=tuple(weights))
    dense = hessians(of, model)
    off = dense - np.tensordot(weights, dense, axes=1)
    u = np.linalg.eigh(np.einsum("i,ijk,ikl->jl", weights, off, off))[1][:, -1]
    slopes = np.stack([of.gradients(model[None], np.array([i]))[0].numpy() for i in range(4)])
    for name, rows in (("L_h", off @ u), ("zeta_rms", slopes - weights @ slopes)):
        part, begin = found[name], 0
        assert part.blocks == ("0.weight", "0.bias", "2.weight", "2.bias")
        for column, length in enumerate((24, 4, 12, 3)):
            wanted = (rows[:, begin : begin + length] ** 2).sum(axis=1)
            np.testing.assert_allclose(part.squares[:, column], wanted, rtol=1e-5, atol=1e-9)
            begin += length
        assert begin == of.dim
        np.testing.assert_allclose(part.by_worker, weights * (rows**2).sum(axis=1) / part.total, rtol=1e-6)


@settings(max_examples=15)
@given(
    of=federations(num_workers=4, dim=3, hessian_spread=1.0, linear_spread=1.0),
    order=st.permutations(range(4)),
    times=st.floats(0.1, 10),
)
def test_laws(of: QuadraticFederation, order: list[int], times: float) -> None:
    A, b, x = of.hessians, of.linear, of.first_model
    with Meter(of, compute=Compute(processes=1)) as meter:
        u = curvature(meter, of.start(0)).directions["L_h"]

    def along(A: Any, b: Any, x: Any = x, u: Any = u) -> Decomposition:
        with Meter(QuadraticFederation(A, b), compute=Compute(processes=1)) as meter:
            return decompose(meter, torch.from_numpy(x), u)

    plain, moved, bigger = along(A, b), along(A[order], b[order]), along(times * A, times * b)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    turned = along(turn @ A @ turn.T, b @ turn.T, turn @ x, turn @ u)
    copies = along(np.repeat(A, 2, axis=0), np.repeat(b, 2, axis=0))
    for name in ("zeta_rms", "L_h"):
        shares = plain[name].by_worker
        np.testing.assert_allclose(moved[name].by_worker, shares[order], atol=1e-8)
        np.testing.assert_allclose(bigger[name].by_worker, shares, atol=1e-8)
        np.testing.assert_allclose(turned[name].by_worker, shares, atol=1e-8)
        np.testing.assert_allclose(copies[name].by_worker, np.repeat(shares, 2) / 2, atol=1e-8)
        assert bigger[name].total == pytest.approx(times**2 * plain[name].total, rel=1e-8)
        assert copies[name].total == pytest.approx(plain[name].total, rel=1e-8)


def test_a_worker_apart_is_named_and_no_other() -> None:
    of = random_quadratics(12, 6, hessian_spread=0.1, linear_spread=0.1, seed=1)
    A, b = of.hessians.copy(), of.linear.copy()
    A[7] += 5 * np.eye(6)
    b[3] += 50
    found = parts(QuadraticFederation(A, b, start=np.zeros(6)))
    assert found["L_h"].outliers == (7,)
    assert found["zeta_rms"].outliers == (3,)
    assert found["zeta_rms"].by_worker.argmax() == 3
    assert parts(of)["L_h"].outliers == ()


def test_where_most_workers_agree_rounding_does_not_stand_out() -> None:
    level = np.full((5, 1), 4.0)
    level[2] *= 1 + 1e-9
    assert Parts("L_h", ("model",), np.full(5, 0.2), level).outliers == ()
    level[2] = 9.0
    assert Parts("L_h", ("model",), np.full(5, 0.2), level).outliers == (2,)
    nothing = Parts("L_h", ("model",), np.full(5, 0.2), np.zeros((5, 1)))
    assert (nothing.total, nothing.outliers, nothing.by_worker.sum()) == (0.0, (), 0.0)


def test_processes_and_chunks_change_nothing() -> None:
    of = random_quadratics(7, 5, hessian_spread=1.0)
    plain = parts(of)
    for other in (parts(of, processes=2), parts(of, chunk=2)):
        for name in ("zeta_rms", "L_h"):
            np.testing.assert_allclose(other[name].squares, plain[name].squares, rtol=1e-7)


def test_it_goes_to_json_and_back() -> None:
    found = parts(random_quadratics(3, 2, hessian_spread=1.0))
    again = Decomposition.from_json(json.loads(json.dumps(found.to_json())))
    assert again.to_json() == found.to_json()
    assert set(found.to_json()["parts"][0]) >= {"total", "by_worker", "by_block", "outliers", "threshold"}


def test_bad_input_is_one_sentence() -> None:
    of = random_quadratics(2, 3)
    with Meter(of, compute=Compute(processes=1)) as meter:
        for direction in (np.zeros(3), np.ones(2), np.full(3, np.nan)):
            with pytest.raises(InputError, match="direction must be 3 finite numbers"):
                decompose(meter, of.start(0), direction)
        with pytest.raises(InputError, match="L_g was not decomposed; choose one of zeta_rms, L_h"):
            decompose(meter, of.start(0))["L_g"]
    with pytest.raises(InputError, match="squares must have a row"):
        Parts("L_h", ("model",), np.ones(2), np.ones((3, 1)))


def test_measure_draws_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedgauge.measurement.values import Measurement, Reading
    from fedgauge.show import console, files
    from fedgauge.show.views import view

    found = parts(network(workers=4))
    reading = Reading("parts", "Where they come from.", details=found.to_json())
    measured = Measurement({}, {"origin": "here", "loss": 1.0, "grad2": 1.0}, (reading,), True, {})
    assert tmp_path / "parts.png" in files.save(measured, tmp_path)
    assert (tmp_path / "parts.png").stat().st_size > 10_000
    console.show(view(measured))
    text = capsys.readouterr().out
    assert "0.weight" in text
    assert "stand out" in text
