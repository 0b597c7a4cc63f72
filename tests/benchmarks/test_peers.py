"""What the contestants of benchmarks/peers share; the libraries themselves are not installed here."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import rounds
from peers import workloads
from peers.networks import make_network, values_of
from peers.run import verdict


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workloads_are_those_of_rounds(name: str) -> None:
    here = workloads.WORKLOADS[name]
    (there,) = (work for work in rounds.WORKLOADS if work.name == name)
    for field in ("num_workers", "samples", "participants", "local_steps", "rounds"):
        assert getattr(here, field) == getattr(there, field)
    assert there.shape == (workloads.INPUTS,)
    assert (workloads.GAMMA, workloads.BATCH) == (rounds.GAMMA, rounds.BATCH)
    shapes = [tuple(parameter.shape) for parameter in there.model.make().parameters()]
    assert [values.shape for values in workloads.first_network()] == shapes


def test_loss_is_torchs_cross_entropy() -> None:
    work = workloads.Workload("few", 2, 30, 2, 1, rounds=1, check_rounds=1, tolerance=1.0)
    x, y = workloads.make_data(work)
    module = make_network()
    expected = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).item()
    # Both add up in single precision: 60 terms near 2, to a few units in the seventh digit.
    assert workloads.loss(values_of(module.parameters()), (x, y)) == pytest.approx(expected, rel=1e-5)
    assert len(np.unique(y)) > 1


@pytest.mark.parametrize(
    ("by_median", "by_fastest", "expected"),
    [(6, 7, "met"), (5, 5, "missed"), (5, 7, "missed by medians"), (7, 5, "missed by fastest turns")],
)
def test_verdict_names_the_measure_that_misses(by_median: float, by_fastest: float, expected: str) -> None:
    assert verdict(by_median, by_fastest, aim=6) == expected
