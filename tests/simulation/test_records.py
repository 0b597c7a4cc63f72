"""Recording never dominates: what is recorded follows from counts, and what is a sample says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedgauge import Compute, Keep, Participation, Recording, SupervisedFederation, fedavg, random_quadratics, simulate
from fedgauge.base.errors import InputError
from fedgauge.measurement.trajectory import exceeded
from fedgauge.simulation.experiment.user_data import TestSet
from fedgauge.simulation.options import StopAt
from fedgauge.simulation.records import CHEAP, RECORDS, Counts, choose

pytestmark = pytest.mark.usefixtures("one_thread")


@settings(max_examples=200, deadline=None)
@given(
    examples=st.integers(1, 10**7),
    workers=st.integers(1, 5000),
    batch=st.integers(1, 10**5),
    watch=st.booleans(),
    tests=st.integers(0, 10**5),
    effort=st.integers(1, 10**9),
    vector=st.floats(0.0, 500.0),
    rounds=st.integers(1, 10**4),
)
def test_records_take_at_most_a_quarter_of_the_work_unless_they_are_cheap(
    examples: int, workers: int, batch: int, watch: bool, tests: int, effort: int, vector: float, rounds: int
) -> None:
    counts = Counts(examples, workers, float(batch), 3.0 if watch else 1.0, tests, effort, vector)
    found = choose(counts, rounds)
    if counts.exact * effort <= CHEAP:
        assert found == (1, None, None, False)
        return
    each = counts.exact
    if found.sample is not None:
        each = counts.sampled(found.sample, tests if found.tests is None else found.tests)
        assert found.sample * workers < examples
        assert found.every >= rounds // RECORDS
    assert each <= found.every * batch / 3 * (1 + 1e-9)


def federation(samples: int = 4000, width: int = 6, workers: int = 4) -> SupervisedFederation:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(samples, 6, generator=generator), torch.randint(3, (samples,), generator=generator)
    shards = np.array_split(np.arange(samples), workers)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))
    return SupervisedFederation(module, functional.cross_entropy, x, y, shards, batch_size=5)


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cheap, and only samples count."""
    monkeypatch.setattr("fedgauge.simulation.records.CHEAP", 0)
    monkeypatch.setattr("fedgauge.simulation.records.VECTOR", (0.0, 0.0))


HOW: dict[str, Any] = {"local_steps": 5, "rounds": 100, "compute": Compute(processes=1)}


def test_small_data_and_quadratics_are_recorded_exactly_in_every_round() -> None:
    for of in (federation(), random_quadratics(4, 3)):
        trace = simulate(of, fedavg(0.05), local_steps=2, rounds=3)
        assert [record.round for record in trace.rounds] == [0, 1, 2, 3]
        assert trace.settings["record_every"] == 1
        assert "record_sample" not in trace.settings
        assert "sample" not in trace.rounds[0].to_json()


@pytest.mark.usefixtures("costly")
def test_large_data_are_recorded_from_a_sample_and_the_settings_say_so(caplog: pytest.LogCaptureFixture) -> None:
    of = federation()
    trace = simulate(of, fedavg(0.05), **HOW)
    # A round has 4 · 5 · 5 = 100 gradients, so that a record every 4 rounds may have 133, in three and a third passes.
    assert (trace.settings["record_every"], trace.settings["record_sample"]) == (4, 10)
    assert [record.round for record in trace.rounds] == list(range(0, 101, 4))
    assert {record.sample for record in trace.rounds} == {4 * 8}  # eight groups of one
    assert any("at most a quarter of the work" in message for message in caplog.messages)


@pytest.mark.usefixtures("costly")
def test_a_sampled_loss_lies_within_its_standard_errors_and_training_is_the_same() -> None:
    of = federation()
    exact = simulate(of, fedavg(0.05), **HOW, record=Recording(every=10))
    off = []
    for seed in range(12):
        sampled = simulate(
            of,
            fedavg(0.05),
            local_steps=1,
            rounds=1,
            seed=seed,
            record=Recording(sample=64, watch=False),
            start=of.start(0),
        )
        first = sampled.rounds[0]
        assert first.loss_error is not None
        off.append((first.loss - exact.rounds[0].loss) / first.loss_error)
    # The mean square of 12 values of Student's t with 7 degrees of freedom is 1.4 on average.
    assert 0.3 < np.mean(np.square(off)) < 4
    watched = simulate(of, fedavg(0.05), **HOW)
    assert np.array_equal(watched.model, exact.model)


def test_a_sample_of_everything_is_exact() -> None:
    of = federation(samples=64)
    how: dict[str, Any] = {"local_steps": 3, "rounds": 2, "compute": Compute(processes=1)}
    exact = simulate(of, fedavg(0.1), **how)
    whole = simulate(of, fedavg(0.1), **how, record=Recording(sample=16))
    for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_tilde_ratio"):
        np.testing.assert_allclose(exact.column(name), whole.column(name), rtol=1e-5)
    assert whole.rounds[0].sample == 64


@pytest.mark.usefixtures("costly")
def test_sampled_records_are_the_same_bits_in_two_processes_and_after_resuming(tmp_path: Path) -> None:
    of = federation()
    how: dict[str, Any] = {**HOW, "rounds": 50, "compute": Compute(processes=2)}
    whole = simulate(of, fedavg(0.05), **{**how, "compute": Compute(processes=1)})
    assert simulate(of, fedavg(0.05), **how) == whole
    simulate(of, fedavg(0.05), **how, keep=tmp_path / "run", stop=StopAt(round=20))
    assert simulate(of, fedavg(0.05), **how, keep=Keep(tmp_path / "run", resume=True)) == whole


@pytest.mark.usefixtures("costly")
def test_part_of_the_test_examples_is_used_and_recorded() -> None:
    of = federation()
    x, y = torch.randn(500, 6), torch.randint(3, (500,))
    test = TestSet(of, x, y)
    trace = simulate(of, fedavg(0.05), **HOW, record=Recording(evaluator=test))
    tests = trace.settings["record_tests"]
    assert 0 < tests < 500
    assert trace.rounds[-1].tests == tests
    assert trace.accuracies[-1] == test.part(tests).accuracy(torch.from_numpy(trace.model))


@pytest.mark.usefixtures("costly")
def test_what_is_asked_for_is_exact_said_to_be_long_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    of, seen = federation(), []
    for processes in (1, 2):
        trace = simulate(
            of,
            fedavg(0.05),
            local_steps=1,
            rounds=1,
            compute=Compute(processes=processes, chunk=1),
            record=Recording(every=1, on_progress=lambda done, total: seen.append((done, total))),
        )
        assert trace.rounds[0].sample is None
    assert any("Recording dominates this run" in message for message in caplog.messages)
    assert (0, 4) in seen
    assert (2, 4) in seen


def test_a_sampled_ratio_proves_nothing_and_bounds_are_not_compared_with_it(tmp_path: Path) -> None:
    of = federation(samples=200)
    trace = simulate(of, fedavg(0.1), local_steps=3, rounds=2, record=Recording(sample=4), keep=tmp_path / "run")
    assert exceeded(trace.rounds, {"L_h": 1e-9, "L_g": 1e-9, "L_tilde": 1e-9}) == []
    from fedgauge.simulation.runs.reader import read_run
    from fedgauge.theory.comparison import compare
    from fedgauge.values import Constants, Estimate

    known = Constants(
        tuple(Estimate.exact(name, 1.0, "made up") for name in ("L_h", "L_g", "L_tilde", "zeta", "sigma"))
    )
    with pytest.raises(InputError, match="made from a sample"):
        compare(read_run(tmp_path / "run"), known, 4)


def test_more_workers_than_a_quarter_allows_are_recorded_rarely() -> None:
    counts = Counts(examples=10**6, workers=10_000, round=200.0, passes=1.0, tests=0, effort=10**6)
    found = choose(counts, rounds=100)
    assert (found.every, found.sample) == (400, 2)


@pytest.mark.parametrize("how", [{"every": 0}, {"sample": 1}])
def test_records_that_cannot_be_made_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        Recording(**how)


def test_few_participants_count_for_less() -> None:
    of = federation()
    found = simulate(
        of,
        fedavg(0.05),
        local_steps=2,
        rounds=2,
        participation=Participation("without-replacement", 2),
        record=Recording(sample=8),
    )
    assert found.rounds[0].L_g_ratio is None
