from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.algorithms.naive import naive_models
from tests.grouped import grouped
from tests.strategies import PARAMETERS, federations

from fedgauge.algorithms import make_algorithm
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording, StopAt
from fedgauge.values import Round

FEDAVG = make_algorithm("fedavg", gamma=0.1)

# -- participation ------------------------------------------------------------------------------------------------


@given(st.sampled_from(["with-replacement", "with-replacement-shared", "without-replacement"]), st.integers(0, 99))
def test_a_cohort_is_ordered_addressed_and_counts_for_one(sampling: Any, round: int) -> None:
    who = Participation(sampling, 5)
    cohort = who.cohort(8, seed=3, round=round)
    again = who.cohort(8, seed=3, round=round)
    assert np.array_equal(cohort.workers, again.workers)
    assert (np.diff(cohort.workers) >= 0).all()
    assert cohort.weights.sum() == pytest.approx(1)
    runs = Counter(zip(cohort.workers.tolist(), cohort.copies.tolist(), strict=True))
    assert max(runs.values()) == 1, "two runs share their randomness"
    for worker, times in Counter(cohort.workers.tolist()).items():
        assert sorted(cohort.copies[cohort.workers == worker].tolist()) == list(range(times))


def test_shared_runs_count_as_often_as_they_were_drawn() -> None:
    for round in range(20):
        own = Participation("with-replacement", 6).cohort(3, 0, round)
        shared = Participation("with-replacement-shared", 6).cohort(3, 0, round)
        assert len(set(shared.workers.tolist())) == len(shared.workers)
        expected = Counter(own.workers.tolist())
        times = dict(zip(shared.workers.tolist(), (shared.weights * 6).tolist(), strict=True))
        assert times == pytest.approx(expected)


@pytest.mark.parametrize("sampling", ["with-replacement", "with-replacement-shared", "without-replacement"])
def test_sampling_is_uniform_and_its_weights_unbiased(sampling: Any) -> None:
    weights = (1.0, 2.0, 3.0, 4.0)
    who = Participation(sampling, 2, weights)
    total, rounds = np.zeros(4), 4000
    for round in range(rounds):
        cohort = who.cohort(4, seed=1, round=round)
        np.add.at(total, cohort.workers, cohort.weights)
    # A weight's mean over rounds has a deviation of at most 0.8/sqrt(4000) = 0.013.
    np.testing.assert_allclose(total / rounds, np.array(weights) / 10, atol=0.05)
    np.testing.assert_allclose(total / rounds / np.array(weights), np.full(4, 0.1), rtol=0.1)


# -- what is recorded ---------------------------------------------------------------------------------------------


def test_records_are_what_their_definitions_say() -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.7, linear_spread=5.0, sigma2=0.5, seed=1)
    trace = simulate(federation, FEDAVG, local_steps=3, rounds=3, seed=9)
    models = naive_models(federation, "fedavg", {"gamma": 0.1, "eta": 1.0}, [3] * 4, 3, seed=9)
    workers = np.arange(4)
    for r, record in enumerate(trace.rounds):
        x = models[r]
        gradients = federation.hessians @ x + federation.linear
        losses = [x @ A @ x / 2 + b @ x for A, b in zip(federation.hessians, federation.linear, strict=True)]
        assert record.round == r
        assert record.loss == pytest.approx(np.mean(losses), rel=1e-12)
        assert record.grad2 == pytest.approx((gradients.mean(axis=0) ** 2).sum(), rel=1e-12)
        if r == 3:
            assert record.spread is None
            assert record.deviation2 is None
            continue
        y = torch.tensor(x).expand(4, -1)
        for draw in federation.draws(Streams(9, Purpose.NOISE), r, workers, np.zeros(4, dtype=np.int64), 3):
            y = y - 0.1 * federation.stochastic_gradients(y, workers, draw)
        mean = y.mean(dim=0)
        gap = (federation.gradients(y, workers) - federation.gradients(mean.expand(4, -1), workers)).mean(dim=0)
        assert record.spread == pytest.approx(float((y - mean).square().sum(dim=1).mean()), rel=1e-12)
        assert record.deviation2 == pytest.approx(float(gap @ gap), rel=1e-9)


@given(federation=federations(), seed=st.integers(0, 99))
def test_the_ratio_seen_never_exceeds_L_h(federation: QuadraticFederation, seed: int) -> None:  # noqa: N802
    L_h = federation.constants()["L_h"].value
    trace = simulate(federation, FEDAVG, local_steps=3, rounds=2, seed=seed)
    for record in trace.rounds[:-1]:
        assert record.deviation2 is not None
        assert record.spread is not None
        # The gap of two gradients of size g is known to about 1e-16 g.
        rounding = 1e-12 * (1 + record.grad2) * (1 + record.spread)
        assert record.deviation2 <= L_h**2 * record.spread * (1 + 1e-9) + rounding**2 + 1e-20


def test_identical_workers_without_noise_do_not_spread() -> None:
    federation = random_quadratics(5, 3, hessian_spread=0.0, linear_spread=0.0)
    for chunk in (2, 32):
        trace = simulate(federation, FEDAVG, local_steps=5, rounds=3, compute=Compute(chunk=chunk))
        assert all(record.spread == 0.0 for record in trace.rounds[:-1])


def test_record_every_keeps_the_first_every_kth_and_the_last() -> None:
    federation = random_quadratics(2, 2)
    trace = simulate(federation, FEDAVG, local_steps=1, rounds=10, record=Recording(every=4))
    assert [record.round for record in trace.rounds] == [0, 4, 8, 10]
    assert len(trace.seconds) == 4
    whole = simulate(federation, FEDAVG, local_steps=1, rounds=10)
    assert trace.rounds == tuple(whole.rounds[r] for r in (0, 4, 8, 10))


def test_the_observer_sees_every_round() -> None:
    seen: list[tuple[int, Round | None]] = []
    simulate(
        random_quadratics(2, 2),
        FEDAVG,
        local_steps=1,
        rounds=3,
        record=Recording(every=2, observer=lambda done, record: seen.append((done, record))),
    )
    # The record that ends the run comes by itself.
    assert [done for done, _ in seen] == [1, 2, 3, 3]
    assert [record is not None for _, record in seen] == [True, False, True, True]


# -- how a run ends -----------------------------------------------------------------------------------------------


def test_the_target_stops_the_run_at_the_first_loss_below_it() -> None:
    federation = random_quadratics(3, 3, seed=2)
    whole = simulate(federation, FEDAVG, local_steps=2, rounds=50)
    target = float(whole.losses[20])
    trace = simulate(federation, FEDAVG, local_steps=2, rounds=50, stop=StopAt(loss=target))
    assert (trace.status, trace.stopped_at) == ("target", 20)
    assert trace.losses.tolist() == whole.losses[:21].tolist()


def test_the_target_of_the_gradient_stops_the_run_too() -> None:
    federation = random_quadratics(3, 3, seed=2)
    whole = simulate(federation, FEDAVG, local_steps=2, rounds=50)
    target = whole.rounds[20].grad2
    first = next(record.round for record in whole.rounds if record.grad2 <= target)
    trace = simulate(federation, FEDAVG, local_steps=2, rounds=50, stop=StopAt(grad2=target))
    assert (trace.status, trace.stopped_at) == ("target", first)


@pytest.mark.parametrize("name", ["fedavg", "momentum", "scaffold"])
def test_a_paused_run_goes_on_to_the_same_bits(tmp_path: Path, name: str) -> None:
    federation = random_quadratics(3, 3, seed=2)
    options: dict[str, Any] = {"local_steps": 2, "rounds": 20, "record_every": 3}
    whole = simulate(federation, make_algorithm(name, gamma=0.05), **grouped(**options))
    seen = []
    for pause in (1, 7, 7, 12, None):
        trace = simulate(
            federation,
            make_algorithm(name, gamma=0.05),
            **grouped(pause=pause, run=tmp_path / "run", resume=True, **options),
        )
        seen.append((trace.status, trace.rounds[-1].round))
        # A pause comes with a record, but for what only the round after it tells.
        assert trace.losses.tolist() == whole.losses[: len(trace.losses)].tolist()
    assert seen == [("stopped", 3), ("stopped", 9), ("stopped", 9), ("stopped", 12), ("finished", 20)]
    assert trace.rounds == whole.rounds
    assert trace.model.tolist() == whole.model.tolist()


@pytest.mark.parametrize("record_every", [1, 7])
def test_divergence_is_an_outcome(record_every: int) -> None:
    federation = random_quadratics(3, 3)
    trace = simulate(
        federation, make_algorithm("fedavg", gamma=1e5), local_steps=5, rounds=500, record=Recording(every=record_every)
    )
    assert trace.status == "diverged"
    assert 0 < trace.stopped_at < 500
    assert len(trace.rounds) >= trace.stopped_at // record_every
    assert np.isfinite(trace.losses).all()
    assert np.isfinite(trace.model).all()


@pytest.mark.parametrize("steps", [np.int64(3), np.array(3), np.array([3, 3]), [np.int64(3), 3]])
def test_numbers_of_numpy_are_numbers(steps: Any, tmp_path: Path) -> None:
    trace = simulate(random_quadratics(2, 2), FEDAVG, local_steps=steps, rounds=2, keep=tmp_path / "run")
    assert trace.losses.tolist() == simulate(random_quadratics(2, 2), FEDAVG, local_steps=3, rounds=2).losses.tolist()


def test_torch_gets_its_threads_back() -> None:
    before = torch.get_num_threads()
    simulate(random_quadratics(2, 2), FEDAVG, local_steps=1, rounds=1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"local_steps": 0}, "local_steps must be"),
        ({"local_steps": [1, 2]}, "one per worker; 2 were given"),
        ({"local_steps": 2.5}, "local_steps must be a whole number of at least 1, not 2.5"),
        ({"local_steps": None}, "local_steps must be a whole number of at least 1, not None"),
        ({"local_steps": np.float64(2.5)}, "local_steps must be a whole number of at least 1, not 2.5"),
        ({"local_steps": [1, 2, 0]}, "local_steps must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"record_every": 0}, "record_every must be"),
        ({"chunk": 0}, "chunk must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**64}, "seed must be"),
        ({"target_loss": float("nan")}, "goal loss must be"),
        ({"participation": Participation("without-replacement", 4)}, "at most the 3 workers"),
        ({"participation": Participation("full", 2)}, "contradicts full participation"),
        ({"participation": Participation(weights=(1, 1))}, "one entry for each of 3 workers"),
        (
            {"algorithm": "scaffold", "participation": Participation("with-replacement", 2)},
            "no worker may be drawn twice",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(how: dict[str, Any], says: str) -> None:
    name = how.pop("algorithm", "fedavg")
    algorithm = make_algorithm(name, **PARAMETERS[name])
    with pytest.raises(InputError, match=says):
        simulate(random_quadratics(3, 2), algorithm, **grouped(**{"local_steps": 1, "rounds": 1, **how}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ful",), "did you mean full"),
        (("with-replacement",), "needs participants"),
        (("with-replacement", 0), "participants must be"),
        (("full", None, (0.0, 0.0)), "not all 0"),
        (("full", None, (1.0, float("nan"))), "finite"),
    ],
)
def test_what_cannot_be_sampled_is_refused(arguments: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Participation(*arguments)


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("fedavgg", {"gamma": 0.1}, "did you mean fedavg"),
        ("fedavg", {"gamma": 0.1, "beta": 0.5}, "fedavg has no parameter beta; it takes gamma, eta"),
        ("fedavg", {}, "needs gamma"),
        ("fedavg", {"gamma": 0.0}, "gamma must be a finite number above 0"),
        ("fedavg", {"gamma": 0.1, "eta": -1.0}, "eta must be"),
        ("fedavg", {"gamma": float("inf")}, "gamma must be"),
        ("momentum", {"gamma": 0.1, "beta": 1.0}, "beta must be at least 0 and below 1"),
        ("slowmo", {"gamma": 0.1, "beta": -0.1}, "beta must be"),
        ("fedadam", {"gamma": 0.1, "beta2": 1.0}, "beta2 must be"),
        ("fedyogi", {"gamma": 0.1, "beta1": 2.0}, "beta1 must be"),
        ("fedadagrad", {"gamma": 0.1, "tau": 0.0}, "tau must be"),
        ("fedprox", {"gamma": 0.1, "proximal": -1.0}, "proximal must be"),
    ],
)
def test_algorithms_refuse_bad_parameters(name: str, parameters: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_algorithm(name, **parameters)
