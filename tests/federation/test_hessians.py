"""Hessian products: written out for dense chains, by autograd for the rest, pooled over workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import chains, convolutional, data, federation, mlp, ragged
from torch import nn
from torch.nn import functional

from fedgauge.federation.kernels.base import squared_error
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.supervised import SupervisedFederation

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(of: SupervisedFederation, number: int, seed: int) -> torch.Tensor:
    return torch.randn(number, of.dim, dtype=of.start(0).dtype, generator=torch.Generator().manual_seed(seed))


def test_hessian_products_are_those_of_the_dense_hessian() -> None:
    of = federation(mlp(4, 3, 3, dtype=torch.float64), shape=(4,), dtype=torch.float64, l2=0.2, workers=3)
    models = torch.randn(3, of.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    vectors = torch.randn_like(models)
    found = of.hessian_products(models, vectors, np.arange(3))
    for worker, shard in enumerate(ragged(60, 3)):
        held = torch.tensor(list(shard))

        def objective(row: torch.Tensor, held: torch.Tensor = held) -> torch.Tensor:
            outputs = torch.func.functional_call(of.module, of.unflatten(row), (of.inputs[held],))
            return functional.cross_entropy(outputs, of.targets[held]) + 0.1 * row.square().sum()

        hessian = torch.autograd.functional.hessian(objective, models[worker])  # type: ignore[no-untyped-call]
        torch.testing.assert_close(found[worker], hessian @ vectors[worker])


def test_hessian_products_of_a_linear_loss_vanish() -> None:
    of = federation(nn.Linear(6, 1), loss=lambda outputs, targets: outputs.mean())
    rows = torch.ones(2, of.dim)
    assert not of.hessian_products(rows, rows, np.arange(2)).any()


@settings(max_examples=60, deadline=None)
@given(
    chain=chains(),
    loss=st.sampled_from([functional.cross_entropy, squared_error]),
    workers=st.integers(1, 4),
    values=st.booleans(),
    equal=st.booleans(),
    small=st.sampled_from([0, 4096]),
)
def test_written_out_products_are_those_of_autograd(
    chain: Any, loss: Any, workers: int, values: bool, equal: bool, small: int
) -> None:
    module, inputs, outputs = chain
    x, y = data(24, inputs, classes=outputs, dtype=torch.float64)
    if values and loss is squared_error:
        y = torch.randn(24, outputs, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    shards = [range(i, 24 // workers * workers, workers) for i in range(workers)] if equal else ragged(24, workers)
    how = {"loss": loss, "x": x, "y": y, "shards": shards, "l2": 0.01}
    module = module.to(torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedgauge.federation.kernels.dense._SAMPLES", 5)
        patch.setattr("fedgauge.federation.kernels.dense._SMALL", small)
        compare(module, how, workers)


def compare(module: nn.Module, how: dict[str, Any], workers: int) -> None:
    dense, plain = federation(module, path="dense", **how), federation(module, path="plain", **how)
    models, vectors, everyone = rows(dense, workers, 3), rows(dense, workers, 4), np.arange(workers)
    found, wanted = (of.hessian_products(models, vectors, everyone) for of in (dense, plain))
    # Sums of at most 24 products of numbers about 1 in another order: rounding of 1e-16 with room to grow.
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("path", ["dense", "plain", "convolutional"])
def test_pooled_products_are_the_weighted_sum_over_the_workers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgauge.federation.shards.BLOCK", 16)
    double = torch.float64
    if path == "convolutional":
        of = federation(convolutional().to(double), shape=(2, 4, 4), dtype=double, l2=0.3)
    else:
        of = federation(mlp(dtype=double), path=path, dtype=double, l2=0.3)
    weights, workers = np.array([0.3, 0.1, 0.2, 0.25]), np.array([0, 1, 2, 4])
    model, vector = rows(of, 2, 5)
    found = of.pooled_hessian(model, vector, workers, weights)
    each = of.hessian_products(model.expand(4, -1), vector.expand(4, -1), workers)
    torch.testing.assert_close(found, torch.from_numpy(weights) @ each)


def test_pooled_products_are_in_float64_whatever_the_model() -> None:
    of = federation()
    model, vector = rows(of, 2, 5)
    found = of.pooled_hessian(model, vector.double(), np.arange(5), np.full(5, 0.2))
    assert found.dtype == torch.float64
    each = of.hessian_products(model.expand(5, -1), vector.expand(5, -1), np.arange(5))
    assert each.dtype == torch.float32
    # Single precision: a few units of 1e-7 in sums of 60 samples.
    torch.testing.assert_close(found, each.double().mean(dim=0), rtol=1e-4, atol=1e-6)


def test_pooled_products_of_quadratics_are_the_mean_matrix_times_the_vector() -> None:
    generator = np.random.default_rng(0)
    roots = generator.standard_normal((4, 3, 3))
    of = QuadraticFederation(roots @ roots.swapaxes(1, 2), generator.standard_normal((4, 3)))
    vector = torch.from_numpy(generator.standard_normal(3))
    found = of.pooled_hessian(torch.zeros(3, dtype=torch.float64), vector, np.arange(4), np.full(4, 0.25))
    torch.testing.assert_close(found, torch.from_numpy(of.mean_hessian) @ vector)
