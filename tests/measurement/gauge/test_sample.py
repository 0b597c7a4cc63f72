"""How many examples the gauge evaluates f on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import federation, mlp

from fedgauge import GaugeOptions, Participation, fedavg, gauge, random_quadratics
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.gauge import runner
from fedgauge.measurement.gauge.runner import EVALUATIONS, sample_of
from fedgauge.simulation.setup import Setup

pytestmark = pytest.mark.usefixtures("one_thread")
OPTIONS = GaugeOptions(steps=60, local_steps=(4,))


def workers() -> SupervisedFederation:
    """Five workers of 120 samples each."""
    torch.manual_seed(0)  # for the module, which is made before the federation seeds anything
    shards = [range(120 * worker, 120 * (worker + 1)) for worker in range(5)]
    return federation(mlp(), samples=600, shards=shards, batch_size=8)


def test_f_is_evaluated_on_all_of_small_data_and_of_functions_without_data() -> None:
    for each in (workers(), random_quadratics(3, 2)):
        assert sample_of(Setup(each, fedavg(0.1)), None, 1000) is None


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 10**4),
    participants=st.integers(1, 5),
    least=st.integers(1, 700),
)
def test_evaluations_that_take_long_take_a_quarter_of_the_work_or_the_least_sample(
    steps: int, participants: int, least: int
) -> None:
    of = workers()
    setup = Setup(of, fedavg(0.1), participation=Participation(sampling="with-replacement", participants=participants))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "CHEAP", 0)
        patch.setattr(runner, "LEAST", least)
        sample = sample_of(setup, None, steps)
    work = steps * participants * of.batch_size
    # A forward pass is a third of a gradient; five workers of 120 samples each.
    wanted = max(work / EVALUATIONS, least) / 5
    assert (sample is None) == (wanted > 119)
    assert sample is None or wanted <= sample < wanted + 1


def test_f_is_that_of_the_same_examples_throughout_and_the_result_says_so() -> None:
    of = workers()
    # The labels are random: in more steps than these, f of so few examples stalls.
    found = gauge(of, fedavg(0.1), options=GaugeOptions(steps=20, local_steps=(4,), sample=16))
    part = of.subset(16, Streams(0, Purpose.SUBSET), round=1)
    assert found.losses[0] == pytest.approx(part.pooled(of.start(0), np.arange(5), np.full(5, 0.2))[0], rel=1e-6)
    assert found.settings["sample"] == 16
    assert any("f is evaluated on 16 examples of each worker" in note for note in found.notes)


def test_a_sample_of_everything_is_everything() -> None:
    whole, all_of_it = (
        gauge(workers(), fedavg(0.1), options=GaugeOptions(**{**vars(OPTIONS), "sample": sample}))
        for sample in (None, 120)
    )
    assert whole == all_of_it
    assert whole.losses[0] != pytest.approx(
        gauge(workers(), fedavg(0.1), options=GaugeOptions(**{**vars(OPTIONS), "sample": 119})).losses[0], rel=1e-9
    )
