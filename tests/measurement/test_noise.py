from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import chains, convolutional, data, federation, mlp, ragged
from tests.grouped import grouped
from torch import nn
from torch.nn import functional

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.kernels.base import squared_error
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.noise import noise
from fedgauge.measurement.passes import Meter, OutOfBudgetError
from fedgauge.measurement.values import Reading

pytestmark = pytest.mark.usefixtures("one_thread")
# Three standard deviations of a binomial around 95% of 200.
NOMINAL = (0.95 - 0.046, 0.95 + 0.046)


def measured(of: Any, model: Any = None, *, meter: Any = None, **how: Any) -> Reading:
    with Meter(of, **grouped(**{"processes": 1, **(meter or {})})) as opened:
        return noise(opened, of.start(0) if model is None else model, **how)


def wide(**how: Any) -> SupervisedFederation:
    torch.manual_seed(0)  # the same model every time
    return federation(**{"module": mlp(dtype=torch.float64), "dtype": torch.float64, **how})


def sample_gradients(of: SupervisedFederation, shard: Any, x: Any, y: Any) -> list[Any]:
    """Each sample's gradient by autograd, with the l2 term, in numpy."""
    found = []
    for s in shard:
        point = of.start(0).requires_grad_()
        outputs = torch.func.functional_call(of.module, of.unflatten(point), (x[s : s + 1],))
        value = of.loss(outputs, y[s : s + 1]) + of.l2 / 2 * point @ point
        found.append(torch.autograd.grad(value, point)[0].double().numpy())
    return found


def variance(rows: Any) -> float:
    """Mean squared distance from the mean."""
    return float(np.square(np.array(rows) - np.mean(rows, axis=0)).sum(axis=1).mean())


# -- exactly ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["dense", "plain"])
@pytest.mark.parametrize("block", [7, 2048])
def test_the_noise_of_all_samples_is_autograd_sample_by_sample(
    path: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedgauge.federation.shards.BLOCK", block)
    of, (x, y) = wide(path=path, l2=0.3), data(60, 6, dtype=torch.float64)
    each = np.array([variance(sample_gradients(of, shard, x, y)) for shard in ragged(60, 5)]) / 4
    weights = (0.1, 0.1, 0.5, 0.2, 0.1)
    reading = measured(of, meter={"weights": weights})
    assert reading.details["variance of each worker"] == pytest.approx(each)
    assert reading.details["worker"] == int(each.argmax())
    found = reading.constants
    assert found["sigma"].value == pytest.approx(each.max() ** 0.5)
    assert found["sigma_rms"].value == pytest.approx((weights @ each) ** 0.5)
    assert (found["sigma"].kind, found["sigma"].low) == ("lower", found["sigma"].value)


def test_convolutions_go_sample_by_sample_too() -> None:
    of, (x, y) = federation(convolutional(), shape=(2, 4, 4), l2=0.3), data(60, 2, 4, 4)
    each = np.array([variance(sample_gradients(of, shard, x, y)) for shard in ragged(60, 5)]) / 4
    # Single precision.
    assert measured(of).details["variance of each worker"] == pytest.approx(each, rel=1e-4)


@settings(max_examples=30)
@given(chain=chains(), loss=st.sampled_from([functional.cross_entropy, squared_error]), equal=st.booleans())
def test_written_out_norms_are_those_of_autograd(chain: Any, loss: Any, equal: bool) -> None:
    module, inputs, outputs = chain
    x, y = data(24, inputs, classes=outputs)
    how = {"loss": loss, "x": x, "y": y, "shards": [range(8), range(8, 16)] if equal else ragged(24, 2)}
    dense, plain = (federation(module, path=path, **how) for path in ("dense", "plain"))
    found = [of.sample_variances(of.start(0), np.arange(2)) for of in (dense, plain)]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_batches_with_and_without_replacement_are_all_batches_enumerated() -> None:
    shards = [range(4), range(4, 9), range(9, 10), range(10, 12)]
    of, (x, y) = wide(samples=12, shards=shards, batch_size=3, l2=0.2), data(12, 6, dtype=torch.float64)
    with_, without = [], []
    for shard in shards:
        rows = sample_gradients(of, shard, x, y)
        with_.append(variance([np.mean(batch, axis=0) for batch in product(rows, repeat=3)]))
        # A shard that is smaller than a batch is taken whole.
        without.append(variance([np.mean(batch, axis=0) for batch in combinations(rows, min(3, len(rows)))]))
    details = measured(of).details
    # Where there is one batch only the variance is 0, and what is found is rounding.
    assert details["variance of each worker"] == pytest.approx(with_, abs=1e-14)
    assert details["without replacement"]["of each worker"] == pytest.approx(without, abs=1e-14)
    assert details["without replacement"]["largest"] == pytest.approx(max(without))


def test_quadratics_know_their_noise() -> None:
    reading = measured(random_quadratics(3, 2, sigma2=0.09), draws=400)
    assert {e.symbol: e.kind for e in reading.estimates} == {"sigma": "exact", "sigma_rms": "exact", "G": "lower"}
    assert reading.constants["sigma"].value == pytest.approx(0.3)
    drawn = reading.details["drawn"]["sigma_rms2"]
    assert drawn["low"] < 0.09 < drawn["high"] < 2 * drawn["low"]


# -- from draws ------------------------------------------------------------------------------------------------------


def muted() -> Any:
    """A federation of which only the operations on rows are known."""
    of = random_quadratics(3, 4, hessian_spread=0.5, sigma2=0.7, seed=2)

    class Rows:
        def __init__(self) -> None:
            self.num_workers, self.dim, self.processes = of.num_workers, of.dim, 1

        def __getattr__(self, name: str) -> Any:
            if name in ("sigma2", "batch_size"):
                raise AttributeError(name)
            return getattr(of, name)

    return Rows(), np.full(3, 0.7)


def skewed() -> Any:
    """Shards of unlike noise, with batches of 4."""
    x, y = data(60, 6, dtype=torch.float64)
    torch.manual_seed(0)  # the same model every time
    of = wide(module=nn.Linear(6, 3).double(), samples=60, workers=3)
    return of, np.array([variance(sample_gradients(of, shard, x, y)) / 4 for shard in ragged(60, 3)])


@pytest.mark.parametrize(("make", "how"), [(muted, {"draws": 24}), (skewed, {"samples": 40, "draws": 4})])
def test_draws_are_unbiased_and_their_intervals_cover(make: Any, how: Any) -> None:
    of, truth = make()
    weights = np.array([0.5, 0.2, 0.3])
    each, covered = [], np.zeros(2)
    for seed in range(200):
        reading = measured(of, meter={"seed": seed, "weights": tuple(weights), "chunk": 3}, **how)
        largest, mean = (reading.constants[name] for name in ("sigma", "sigma_rms"))
        each.append(reading.details["variance of each worker"])
        assert mean.value**2 == pytest.approx(weights @ each[-1])
        covered += [
            largest.low**2 <= truth.max() <= largest.high**2,
            mean.low**2 <= weights @ truth <= mean.high**2,
        ]
    assert largest.kind == mean.kind == "sample"
    errors = (np.mean(each, axis=0) - truth) / (np.std(each, axis=0) / 200**0.5)
    assert np.abs(errors).max() < 4
    # The interval of the largest is surer than it says.
    assert covered[0] / 200 >= NOMINAL[0]
    assert NOMINAL[0] <= covered[1] / 200 <= NOMINAL[1]


def test_batches_drawn_agree_with_all_samples() -> None:
    of, truth = skewed()
    drawn = measured(of, draws=2000).details["drawn"]
    mean = drawn["sigma_rms2"]
    assert mean["low"] <= truth.mean() <= mean["high"]
    assert mean["high"] - mean["low"] < 0.15 * truth.mean()
    assert drawn["sigma2"]["low"] <= truth.max() <= drawn["sigma2"]["high"]


def test_the_interval_of_the_largest_holds_for_many_workers() -> None:
    of, covered = random_quadratics(20, 2, sigma2=1.0), 0
    for seed in range(100):
        found = measured(of, meter={"seed": seed}, draws=60).details["drawn"]["sigma2"]
        covered += found["low"] <= 1 <= found["high"]
    # Twenty intervals of 95% each would hold together in about 60% of the cases.
    assert covered >= 90


def test_the_largest_entry_is_that_of_the_draws() -> None:
    of = wide(l2=0.1)
    reading = measured(of, draws=8, meter={"seed": 3, "chunk": 2})
    streams, everyone, seen = Streams(3, Purpose.MEASURE), np.arange(5), []
    for pair in range(4):
        for draw in of.draws(streams, pair, everyone, np.ones(5, dtype=int), 2):
            seen.append(of.stochastic_gradients(of.start(0).expand(5, -1), everyone, draw).abs())
    stacked = torch.stack(seen)
    assert reading.constants["G"].value == pytest.approx(float(stacked.max()))
    _, worker, entry = np.unravel_index(int(stacked.argmax()), stacked.shape)
    place = reading.details["G"]
    assert (place["worker"], place["entry"], place["of draws"]) == (worker, entry, 8)
    names = [name for name, part in of.module.named_parameters() for _ in range(part.numel())]
    assert place["parameter"] == names[entry]


# -- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 99))
def test_laws(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shards = [sorted(generator.choice(40, 8).tolist()) for _ in range(4)]
    order = generator.permutation(4)

    def found(**how: Any) -> Any:
        constants = measured(wide(samples=40, **how), draws=4).constants
        return np.array([constants["sigma"].value, constants["sigma_rms"].value])

    before = found(shards=shards)
    for name, factor, change in (
        ("permuted", 1.0, {"shards": [shards[i] for i in order]}),
        ("doubled", 1.0, {"shards": shards * 2}),
        ("every sample twice", 1.0, {"shards": [shard * 2 for shard in shards]}),
        ("scaled", 3.0, {"shards": shards, "loss": lambda out, y: 3 * functional.cross_entropy(out, y)}),
        ("four times the batch", 0.5, {"shards": shards, "batch_size": 16}),
        ("with a norm", 1.0, {"shards": shards, "l2": 0.7}),
    ):
        np.testing.assert_allclose(found(**change), factor * before, err_msg=name)


def test_processes_share_the_work_to_the_same_bits() -> None:
    of = federation(workers=7)
    for how in ({}, {"samples": 20}):
        one, two = (measured(of, meter={"processes": p, "chunk": 2}, **how) for p in (1, 2))
        assert one.to_json() == two.to_json()


# -- budgets and mistakes --------------------------------------------------------------------------------------------


def test_a_budget_cuts_the_draws_short() -> None:
    of = wide(samples=60, batch_size=3)  # a pair of every worker's stochastic gradients is half a pass
    reading = measured(of, draws=4, samples=400, meter={"passes": 5})
    assert reading.notes[0].startswith("The 5 passes that were allowed are used up.")
    assert reading.constants["sigma"].kind == "sample"
    with pytest.raises(OutOfBudgetError, match="The 3 passes that were allowed are used up"):
        measured(of, draws=8, meter={"passes": 3})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"draws": 3}, "draws must be a whole number of at least 4, not 3."),
        ({"samples": 1}, "samples must be a whole number of at least 4, not 1."),
        ({"model": torch.zeros(2)}, "The model has 2 parameters, but the federation's has 53; give one of that size."),
        ({"meter": {"passes": 0.1}}, "is too few for two pairs of gradients, the least that has an interval, which"),
        ({"meter": {"passes": 1.9}}, "passes = 1.9 is too few for the noise of all samples, which takes 2; allow"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        measured(wide(), **{"draws": 4, **how})
    assert said in str(error.value)


def test_samples_need_data() -> None:
    with pytest.raises(InputError, match="samples needs a federation with data, which this one does not have; set"):
        measured(random_quadratics(2, 2), samples=10)
