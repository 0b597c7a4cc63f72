"""The search for the rate of somebody who names none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedgauge import GaugeOptions, QuadraticFederation, fedavg, federate, gauge, random_quadratics, with_optimiser
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.rate import fastest_rate, first_guess
from fedgauge.simulation.setup import Setup


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(0.05, 1.0))
def test_the_guess_and_the_rate_follow_the_curvature(steepest: float, flattest: float) -> None:
    """Gradient descent on a quadratic is fastest a little below 2/L_g; a factor of two cannot get nearer."""
    H = np.diag([steepest, flattest * steepest])
    federation = QuadraticFederation([H], [np.ones(2)], start=[3.0 / steepest, 4.0 / steepest])
    guess = first_guess(Setup(federation, fedavg(1.0)))
    # Four power iterations see at least three quarters of the largest eigenvalue here, and the guess is a power of two.
    assert 0.5 <= guess * steepest <= 4 / 3
    found = fastest_rate(lambda gamma: Setup(federation, fedavg(gamma)), steps=64)
    # Where one step solves it almost, rounding decides between neighbours.
    assert 0.25 <= found.gamma * steepest < 2.0
    assert found.gradient_steps == sum(64 for _ in found.tried)


def test_it_is_the_best_of_what_was_tried() -> None:
    federation = random_quadratics(5, 4, conditioning=20, sigma2=0.5, seed=3)
    found = fastest_rate(lambda gamma: Setup(federation, fedavg(gamma)), steps=4000)
    above = dict(found.tried)
    assert above[found.gamma] <= 1.03 * min(above.values())
    assert f"gamma {found.gamma:.3g} was chosen: of {len(above)} rates" in found.sentence


def test_a_federation_alone_is_enough(tmp_path: Path) -> None:
    torch.manual_seed(1)
    inputs = [torch.randn(30, 4) + worker for worker in range(3)]
    shards = [(x, (x[:, 0] > x[:, 1]).long()) for x in inputs]
    options = GaugeOptions(steps=256, local_steps=[4])
    federation = federate(lambda: torch.nn.Linear(4, 2), functional.cross_entropy, shards, batch_size=5)
    found = gauge(federation, options=options, directory=tmp_path / "parts", progress=None)
    assert found.rate is not None
    assert found.settings["algorithm"]["gamma"] == found.rate.gamma
    assert found.spent.gradient_steps > found.rate.gradient_steps >= 128
    assert found.notes[0] == found.rate.sentence
    again = gauge(federation, options=options, directory=tmp_path / "parts", progress=None)
    assert again == found


def test_another_optimiser_begins_at_another_guess() -> None:
    federation = random_quadratics(3, 4)
    assert first_guess(Setup(federation, with_optimiser(fedavg(1.0), "adamw"))) == 2.0**-8


def test_where_f_falls_at_no_rate_the_search_says_so() -> None:
    noisy = QuadraticFederation([[[1.0]]], [[0.0]], sigma2=1e12, start=[1e-3])
    with pytest.raises(InputError, match="f falls at no rate from"):
        fastest_rate(lambda gamma: Setup(noisy, fedavg(gamma)), steps=64)
