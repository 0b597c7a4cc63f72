from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.federation.networks import federation, ragged
from tests.grouped import grouped
from torch import nn

from fedgauge.algorithms import fedavg
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.divergence import ALONE
from fedgauge.measurement.intervals import of_mean
from fedgauge.measurement.local_steps import LocalSteps
from fedgauge.measurement.passes import Meter, OutOfBudgetError
from fedgauge.measurement.sampled import _repeat, sampled_deviation, sampled_divergence
from fedgauge.measurement.values import Reading
from fedgauge.simulation.options import Compute

pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHTS = (0.5, 0.2, 0.3)
THIRDS = [range(20), range(20, 40), range(40, 60)]
STEPS = LocalSteps(fedavg(0.5), 4)


def small(**how: Any) -> SupervisedFederation:
    """Three workers with ragged shards of 60 samples, whose gradients differ less than their noise."""
    how = {"dtype": torch.float64, "workers": 3, "samples": 60, "l2": 0.1, **how}
    torch.manual_seed(0)  # the same model every time
    return federation(nn.Linear(6, 3).double(), **how)


def measured(estimator: Any, of: Any, *given: Any, meter: Any = None, **how: Any) -> Reading:
    with Meter(of, **grouped(**{"processes": 1, "chunk": 3, **(meter or {})})) as opened:
        reading: Reading = estimator(opened, of.start(0), *given, **how)
        return reading


def exact(of: SupervisedFederation) -> tuple[float, float]:
    """zeta_rms^2 and |grad f|^2 from the workers' whole shards."""
    rows = of.gradients(of.start(0).expand(3, -1), np.arange(3))
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    mean = weights @ rows
    return float(weights @ (rows - mean).square().sum(dim=1)), float(mean @ mean)


def local_models(of: SupervisedFederation, seed: int = 0) -> torch.Tensor:
    everyone = np.arange(of.num_workers)
    draws = of.draws(Streams(seed, Purpose.NOISE), 0, everyone, np.zeros_like(everyone), 4)
    return of.local_sgd(of.start(0).expand(of.num_workers, -1), everyone, draws, 0.5)


def exact_deviation(of: SupervisedFederation, models: torch.Tensor) -> tuple[float, float]:
    """deviation2 and the spread from the workers' whole shards."""
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    mean = weights @ models
    gap = weights @ (of.gradients(models, np.arange(3)) - of.gradients(mean.expand(3, -1), np.arange(3)))
    return float(gap @ gap), float(weights @ (models - mean).square().sum(dim=1))


# -- subsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [ragged(60, 3), [range(20), range(10, 50), range(40, 60)]])
def test_subsets_are_uniform_distinct_and_share_the_data(shards: Any) -> None:
    of, streams = small(shards=shards), Streams(0, Purpose.SUBSET)
    held, seen = of.sizes(np.arange(3)), np.zeros((3, 60))
    for round in range(300):
        part = of.subset(0.25, streams, round=round)
        assert part._data.samples is not None
        assert part.inputs.data_ptr() == of.inputs.data_ptr()
        np.testing.assert_array_equal(part.sizes(np.arange(3)), np.rint(0.25 * held))
        for worker in range(3):
            numbers = part._data.samples[slice(*part._data.offsets[worker : worker + 2])].numpy()
            assert len(set(numbers.tolist())) == len(numbers)
            seen[worker, numbers] += 1
    for worker, shard in enumerate(shards):
        inside = np.isin(np.arange(60), list(shard))
        assert not seen[worker, ~inside].any()
        expected = 300 * np.rint(0.25 * held[worker]) / held[worker]
        # Each count is binomial at most: five standard deviations for sixty of them.
        assert np.abs(seen[worker, inside] - expected).max() < 5 * expected**0.5


def test_a_workers_subset_depends_on_its_address_alone() -> None:
    of, streams, where = small(), Streams(3, Purpose.SUBSET), dict[str, Any](round=2, copy=1)
    whole, last = of.subset(4, streams, **where), of.subset(4, streams, **where, workers=np.array([2]))
    assert whole._data.samples is not None
    assert last._data.samples is not None
    assert whole._data.samples[-4:].tolist() == last._data.samples.tolist()
    other = of.subset(4, streams, round=2)
    assert other._data.samples is not None
    assert whole._data.samples.tolist() != other._data.samples.tolist()
    assert torch.equal(whole.start(7), of.start(7))
    assert whole.digest != of.digest
    assert of.subset(1000, streams).sizes(np.arange(3)).tolist() == of.sizes(np.arange(3)).tolist()


# -- unbiased, with intervals that cover -----------------------------------------------------------------------------


def test_cross_products_are_unbiased_and_the_plug_in_is_not() -> None:
    of, (zeta2, grad2) = small(), exact(small())
    streams, weights = Streams(0, Purpose.SUBSET), torch.tensor(WEIGHTS, dtype=torch.float64)
    reading = measured(
        sampled_divergence, of, size=0.15, tolerance=1e-9, most=300, meter={"weights": WEIGHTS, "seed": 1}
    )
    assert reading.details["repetitions"] == 300
    plug_in = []
    for round in range(300):
        rows = of.subset(0.15, streams, round=round).gradients(of.start(0).expand(3, -1), np.arange(3))
        mean = weights @ rows
        plug_in.append([float(weights @ (rows - mean).square().sum(dim=1)), float(mean @ mean)])
    for name, truth, naive in zip(("zeta_rms2", "grad2"), (zeta2, grad2), np.array(plug_in).T, strict=True):
        found = reading.details[name]
        error = (found["high"] - found["low"]) / (2 * 1.96)
        assert abs(found["value"] - truth) < 4 * error
        # What the plug-in is off by is no matter of chance, and no small matter.
        assert naive.mean() - truth > 10 * naive.std() / 300**0.5
        assert naive.mean() > 1.5 * truth


def test_deviations_are_unbiased_and_the_plug_in_is_not() -> None:
    of = small()
    truth, spread = exact_deviation(of, local_models(of, 1))
    how: dict[str, Any] = {"size": 0.15, "tolerance": 1e-9, "most": 240, "meter": {"weights": WEIGHTS, "seed": 1}}
    reading = measured(sampled_deviation, of, STEPS, **how)
    found = reading.details["deviation2"]
    assert abs(found["value"] - truth) < 4 * (found["high"] - found["low"]) / (2 * 1.96)
    assert reading.constants["spread"].value == pytest.approx(spread)
    assert reading.constants["L_h"].value == pytest.approx((found["value"] / spread) ** 0.5)
    streams, models, naive = Streams(1, Purpose.SUBSET), local_models(of, 1), []
    for round in range(240):
        naive.append(exact_deviation(of.subset(0.15, streams, round=round), models)[0])
    assert np.mean(naive) - truth > 10 * np.std(naive) / 240**0.5
    # The same from the local models themselves.
    given = measured(sampled_deviation, of, models, **{**how, "most": 10})
    again = measured(sampled_deviation, of, STEPS, **{**how, "most": 10})
    assert given.details["deviation2"]["value"] == pytest.approx(again.details["deviation2"]["value"])


@pytest.mark.parametrize("name", ["zeta_rms2", "deviation2"])
def test_intervals_cover_at_their_rate(name: str) -> None:
    of, covered = small(shards=THIRDS), 0
    models = local_models(of)
    estimator: Any = sampled_divergence if name == "zeta_rms2" else sampled_deviation
    given = () if name == "zeta_rms2" else (models,)
    truth = exact(of)[0] if name == "zeta_rms2" else exact_deviation(of, models)[0]
    for seed in range(200):
        how: dict[str, Any] = {"size": 0.5, "tolerance": 1e-9, "most": 20}
        found = measured(estimator, of, *given, meter={"weights": WEIGHTS, "seed": seed}, **how).details[name]
        covered += found["low"] <= truth <= found["high"]
    # Products of gradients are skewed, so that t of twenty covers 93.6% (1500 runs, docs/theory/estimates.md)
    # and not quite 95%: three standard deviations of a binomial below 93% of 200, and above 95%.
    assert 0.93 - 0.054 <= covered / 200 <= 0.95 + 0.046


def test_intervals_cover_at_their_rate_where_they_end_the_repetitions() -> None:
    covered, ended = 0, []
    with Meter(small(), compute=Compute(processes=1)) as meter:
        for seed in range(1000):
            generator = np.random.default_rng(seed)
            found = _repeat(meter, lambda _, draw=generator.normal: (draw(1.0, 1.0),), 0.5, 400)  # type: ignore[misc]
            mean = of_mean(found.values[:, 0])
            covered += mean.low <= 1 <= mean.high
            ended.append(len(found.values))
            assert mean.high - mean.value <= 0.5 * mean.value
    assert (min(ended), len(set(ended)) > 20) == (20, True)
    # Three standard deviations of a binomial around 95% of 1000; from 2 repetitions instead of 20 it is 91%.
    assert 0.95 - 0.021 <= covered / 1000 <= 0.95 + 0.021


def test_shards_of_one_sample_have_no_noise() -> None:
    of = small(shards=[range(1), range(1, 2), range(2, 60)])
    rows = of.gradients(of.start(0).expand(3, -1), np.arange(3))
    reading = measured(sampled_divergence, of, size=1, tolerance=1e-9, most=400)
    found, truth = reading.details["zeta_rms2"], float((rows - rows.mean(dim=0)).square().sum(dim=1).mean())
    assert abs(found["value"] - truth) < 4 * (found["high"] - found["low"]) / (2 * 1.96)


# -- laws, budgets and mistakes --------------------------------------------------------------------------------------


def test_processes_share_the_work_to_the_same_bits_and_chunks_agree() -> None:
    of = federation(workers=7)
    for estimator, given in ((sampled_divergence, ()), (sampled_deviation, (STEPS,))):
        found = [
            measured(estimator, of, *given, size=0.3, most=6, meter={"processes": p, "chunk": c})
            for p, c in ((1, 2), (2, 2), (1, 3))
        ]
        assert found[0].to_json() == found[1].to_json()
        for one, other in zip(found[0].estimates, found[2].estimates, strict=True):
            # Single precision.
            assert one.value == pytest.approx(other.value, rel=1e-3)


def test_a_reading_says_what_it_cost_and_that_it_was_cut_short() -> None:
    of = small(shards=THIRDS)
    # A subset of a fifth of the samples twice is 0.4 passes.
    reading = measured(sampled_divergence, of, size=0.2, tolerance=1e-9, meter={"passes": 2.0})
    assert reading.details["repetitions"] == 5
    assert reading.constants["zeta_rms"].cost == pytest.approx({"gradient passes": 2.0})
    assert reading.notes[0] == "The 2 passes that were allowed are used up. There were 5 repetitions."
    reading = measured(sampled_deviation, of, STEPS, size=0.2, tolerance=1e-9, most=3)
    # Four batches of 4 of 20 samples a repetition, and once more for the spread, beside four subset gradients.
    assert reading.constants["deviation2"].cost == pytest.approx({"gradient passes": 3 * (0.8 + 0.8)})
    assert reading.notes == ("After 3 repetitions the interval is still wider than the tolerance.",)
    assert Reading.from_json(reading.to_json()).to_json() == reading.to_json()


def test_time_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fedgauge.measurement.passes.time.monotonic", lambda: now[0])
    with Meter(
        small(), until=10, progress=lambda *_: now.__setitem__(0, now[0] + 3), compute=Compute(processes=1)
    ) as meter:
        reading = sampled_divergence(meter, small().start(0), size=0.2)
        assert reading.notes[0] == "The time that was allowed is used up. There were 4 repetitions."
        with pytest.raises(OutOfBudgetError, match="The time that was allowed is used up"):
            sampled_divergence(meter, small().start(0), size=0.2)


def test_one_worker_has_no_divergence() -> None:
    reading = measured(sampled_divergence, small(workers=1), size=0.2)
    assert reading.constants["zeta_rms"].high == 0
    assert reading.notes == (ALONE,)


def test_equal_workers_cannot_be_told_from_zero() -> None:
    reading = measured(sampled_divergence, small(shards=[range(60)] * 3), size=0.2, most=20)
    assert reading.constants["zeta_rms"].low == 0
    assert any("cannot be distinguished from 0" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, not 0."),
        (
            {"size": 1.5},
            "size must be a whole number of samples per worker, or a fraction of them above 0.0 and up to 1.0, not 1.5",
        ),
        ({"size": 1.0}, "size = 1.0 uses every sample of every worker; use fewer, or measure exactly."),
        ({"size": 100}, "size = 100 uses every sample of every worker; use fewer, or measure exactly."),
        ({"tolerance": 0}, "tolerance must be a finite number above 0, not 0."),
        ({"most": 1}, "most must be a whole number of at least 2, not 1."),
        ({"meter": {"passes": 0.1}}, "passes = 0.1 is too few for two repetitions, the least that has an interval"),
        (
            {"estimator": sampled_deviation, "given": (torch.zeros(2, 2),)},
            "local must have one row of 21 numbers for each of 3",
        ),
        ({"estimator": sampled_deviation, "given": (LocalSteps(fedavg(1.0), 0),)}, "The local models do not differ"),
        (
            {"of": random_quadratics(3, 2)},
            "Only a federation with data can be sampled, and this one has none; measure it exactly, with",
        ),
    ],
)
def test_mistakes_are_answered_in_one_sentence(how: dict[str, Any], said: str) -> None:
    estimator, of, given = how.pop("estimator", sampled_divergence), how.pop("of", None), how.pop("given", ())
    with pytest.raises(InputError) as error:
        measured(estimator, of or small(), *given, **{"size": 0.2, **how})
    assert said in str(error.value)
