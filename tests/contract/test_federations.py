"""A federation is whatever has the protocol's members: one written by hand goes through everything that takes one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.federation.networks import data, ragged
from torch import nn
from torch.nn import functional

from fedgauge import fedavg, random_quadratics, scaffold, simulate
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Streams
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import (
    Federation,
    HasCurvature,
    HasKnownNoise,
    HasLosses,
    HasModule,
    HasPooledLoss,
    HasSampleNoise,
    HasSamples,
    HasSubsets,
    Indices,
)
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.decomposition import decompose
from fedgauge.measurement.divergence import divergence
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter
from fedgauge.measurement.sampled import sampled_divergence
from fedgauge.simulation.options import Compute, Keep, StopAt

pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES, WIDTH, WORKERS, BATCH = 3, 4, 5, 4


class ByHand:
    """Softmax regression with the formulas written out in numpy: the members of a federation and nothing else."""

    num_workers, dim, processes, digest = WORKERS, CLASSES * WIDTH, 1, hashlib.sha256(b"by hand").hexdigest()

    def __init__(self) -> None:
        x, y = data(60, WIDTH, classes=CLASSES, dtype=torch.float64)
        self.shards = [(x[list(part)].numpy(), np.eye(CLASSES)[y[list(part)]]) for part in ragged(60, WORKERS)]

    def chunk(self, participants: int) -> int:
        return 2

    def start(self, seed: int) -> torch.Tensor:
        return torch.from_numpy(np.random.default_rng(seed).normal(size=self.dim))

    def _slope(self, row: torch.Tensor, x: Any, y: Any) -> tuple[float, npt.NDArray[np.float64]]:
        scores = x @ row.numpy().reshape(CLASSES, WIDTH).T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log((chances * y).sum(axis=1)).mean()
        return float(loss), ((chances - y).T @ x / len(x)).reshape(-1)

    def gradients(self, models: torch.Tensor, workers: Indices) -> torch.Tensor:
        found = [self._slope(row, *self.shards[worker])[1] for row, worker in zip(models, workers, strict=True)]
        return torch.from_numpy(np.stack(found))

    def pooled(self, model: torch.Tensor, workers: Indices, weights: Any) -> tuple[float, torch.Tensor]:
        found = [self._slope(model, *self.shards[worker]) for worker in workers]
        losses, slopes = zip(*found, strict=True)
        return float(weights @ np.array(losses)), torch.from_numpy(weights @ np.stack(slopes))

    def draws(self, streams: Streams, round: int, workers: Indices, copies: Indices, steps: int) -> Sequence[Any]:
        rows = [
            streams.at(round, int(worker), int(copy)).integers(len(self.shards[worker][0]), size=(steps, BATCH))
            for worker, copy in zip(workers, copies, strict=True)
        ]
        return list(np.stack(rows, axis=1))

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        found = [
            self._slope(row, *(part[batch] for part in self.shards[worker]))[1]
            for row, worker, batch in zip(models, workers, draws, strict=True)
        ]
        return torch.from_numpy(np.stack(found))

    def local_sgd(self, models: torch.Tensor, workers: Indices, draws: Sequence[Any], gamma: float) -> torch.Tensor:
        for draw in draws:
            models = models - gamma * self.stochastic_gradients(models, workers, draw)
        return models


class WithCurvature(ByHand):
    """The same with products with Hessians, by the formula."""

    def hessian_products(self, models: torch.Tensor, vectors: torch.Tensor, workers: Indices) -> torch.Tensor:
        rows = []
        for row, vector, worker in zip(models.numpy(), vectors.numpy(), workers, strict=True):
            x, _ = self.shards[worker]
            chances = np.exp(x @ row.reshape(CLASSES, WIDTH).T)
            chances /= chances.sum(axis=1, keepdims=True)
            along = x @ vector.reshape(CLASSES, WIDTH).T
            turned = chances * along - chances * (chances * along).sum(axis=1, keepdims=True)
            rows.append((turned.T @ x / len(x)).reshape(-1))
        return torch.from_numpy(np.stack(rows))

    def pooled_hessian(self, model: torch.Tensor, vector: torch.Tensor, workers: Indices, weights: Any) -> torch.Tensor:
        rows = (len(workers), -1)
        return torch.from_numpy(weights) @ self.hessian_products(model.expand(rows), vector.expand(rows), workers)


def like(hand: ByHand) -> SupervisedFederation:
    """The same workers as a federation of fedgauge's own."""
    x, y = data(60, WIDTH, classes=CLASSES, dtype=torch.float64)
    module = nn.Linear(WIDTH, CLASSES, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(hand.start(0).view(CLASSES, WIDTH))
    return SupervisedFederation(module, functional.cross_entropy, x, y, ragged(60, WORKERS), batch_size=BATCH)


def test_it_has_the_members_of_a_federation_and_none_more() -> None:
    members = {name for base in Federation.__mro__ for name in vars(base) if not name.startswith("_")}
    own = {name for name in (*vars(ByHand), *vars(ByHand())) if not name.startswith("_")}
    assert own - {"shards"} == members
    assert len(members) == 11
    assert ByHand.__mro__ == (ByHand, object)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("make", [fedavg, scaffold])
def test_it_is_simulated_as_the_same_workers_are(make: Any, processes: int) -> None:
    how: dict[str, Any] = {"local_steps": 4, "rounds": 6, "participation": Participation("without-replacement", 4)}
    hand: Federation = ByHand()
    found = simulate(hand, make(0.3), **how, compute=Compute(processes=processes))
    expected = simulate(like(ByHand()), make(0.3), **how, compute=Compute(processes=1, chunk=2))
    np.testing.assert_allclose(found.model, expected.model, rtol=1e-10)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-10)
    assert found.losses[-1] < found.losses[0]


def test_it_is_kept_and_resumed(tmp_path: Any) -> None:
    how: dict[str, Any] = {"local_steps": 2, "rounds": 6}
    whole = simulate(ByHand(), fedavg(0.1), **how)
    simulate(ByHand(), fedavg(0.1), **how, stop=StopAt(round=3), keep=tmp_path / "run")
    assert simulate(ByHand(), fedavg(0.1), **how, keep=Keep(tmp_path / "run", resume=True)) == whole


def test_it_is_measured_as_the_same_workers_are() -> None:
    hand, model = WithCurvature(), ByHand().start(0)
    steps = LocalSteps(fedavg(0.1), 3)
    readings = []
    for of in (hand, like(hand)):
        with Meter(of, compute=Compute(processes=1)) as meter:
            readings.append(
                {
                    **curvature(meter, model).constants,
                    **divergence(meter, model, iterates=steps).constants,
                    **{f"part of {part.symbol}": part.total for part in decompose(meter, model).parts},
                }
            )
    ours, theirs = readings
    assert ours.keys() == theirs.keys() > {"L_g", "L_h", "L_tilde", "zeta", "zeta_local", "part of L_h"}
    for name, value in ours.items():
        found, expected = (getattr(each, "value", each) for each in (value, theirs[name]))
        assert found == pytest.approx(expected, rel=1e-6), name


def test_its_noise_is_estimated_from_draws() -> None:
    hand = ByHand()
    with Meter(hand) as meter:
        found = noise(meter, hand.start(0), draws=400).constants["sigma"]
    with Meter(like(hand), compute=Compute(processes=1)) as meter:
        exact = noise(meter, hand.start(0)).constants["sigma"]
    assert found.kind == "sample"
    assert found.low <= exact.value <= found.high
    assert found.value == pytest.approx(exact.value, rel=0.2)


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        (curvature, "Curvature needs products with Hessians, which a ByHand does not offer"),
        (decompose, "Curvature needs products with Hessians, which a ByHand does not offer"),
        (sampled_divergence, "Only a federation with data can be sampled"),
        (lambda meter, model: noise(meter, model, samples=8), "samples needs a federation with data"),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_what_it_does_not_offer_is_said_in_one_sentence(measure: Any, says: str, processes: int) -> None:
    hand = ByHand()
    with Meter(hand, compute=Compute(processes=processes)) as meter, pytest.raises(InputError, match=says) as refused:
        measure(meter, hand.start(0))
    assert "\n" not in str(refused.value)


def test_each_protocol_is_recognised_where_it_is_offered() -> None:
    always = (HasLosses, HasPooledLoss, HasCurvature, HasSamples, HasSampleNoise, HasSubsets, HasModule)
    optional = (*always, HasKnownNoise)
    offered = {
        type(of).__name__: {protocol.__name__ for protocol in optional if isinstance(of, protocol)}
        for of in (ByHand(), WithCurvature(), random_quadratics(2, 2), like(ByHand()))
    }
    assert offered == {
        "ByHand": set(),
        "WithCurvature": {"HasCurvature"},
        "QuadraticFederation": {"HasLosses", "HasCurvature", "HasKnownNoise"},
        "SupervisedFederation": {protocol.__name__ for protocol in always},
    }
