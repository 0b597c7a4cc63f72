"""The largest eigenvalue from products: against dense solvers, with intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.measurement import lanczos
from fedgauge.measurement.intervals import CONFIDENCE
from fedgauge.measurement.lanczos import largest


def symmetric(values: Floats, seed: int) -> Floats:
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    matrix: Floats = (basis * values) @ basis.T
    return matrix


@settings(max_examples=40)
@given(dim=st.integers(1, 120), seed=st.integers(0, 2**32), positive=st.booleans())
def test_agrees_with_a_dense_solver(dim: int, seed: int, positive: bool) -> None:
    values = np.random.default_rng(seed).standard_normal(dim)
    matrix = symmetric(np.abs(values) if positive else values, seed)
    found = largest(lambda v: matrix @ v, dim, 1e-10, np.random.default_rng(seed), positive=positive)
    truth = np.abs(np.linalg.eigvalsh(matrix)).max()
    assert found.value == pytest.approx(truth, rel=1e-8)
    assert found.value <= truth * (1 + 1e-12) + 1e-300
    assert found.high >= truth * (1 - 1e-12)
    assert np.linalg.norm(matrix @ found.vector) == pytest.approx(truth, rel=1e-7)


def test_an_interval_covers_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # A hard spectrum, eigenvalues that crowd at the top, and no accuracy to speak of: one cycle of few steps.
    monkeypatch.setattr(lanczos, "_STEPS", 8)
    values = 1 - np.linspace(0, 1, 400) ** 2
    covered = 0
    for seed in range(200):
        found = largest(lambda v: values * v, 400, 0.5, np.random.default_rng(seed), positive=True)
        assert found.value <= 1 + 1e-12
        covered += found.high >= 1
    assert covered >= binom.ppf(0.001, 200, CONFIDENCE)


def test_zero_and_single_directions() -> None:
    generator = np.random.default_rng(0)
    nothing = largest(lambda v: 0 * v, 300, 1e-6, generator)
    assert (nothing.value, nothing.high, nothing.converged) == (0.0, 0.0, True)
    unit = np.eye(300)[7]
    one = largest(lambda v: -5 * unit * (unit @ v), 300, 1e-9, generator)
    assert one.value == pytest.approx(5)
    same = largest(lambda v: 2 * v, 300, 1e-9, generator)
    assert same.value == pytest.approx(2)


def test_what_does_not_settle_is_said() -> None:
    values = np.concatenate([np.full(2000, 1 - 1e-9), [1.0]])
    found = largest(lambda v: values * v, len(values), 1e-15, np.random.default_rng(0), positive=True)
    assert found.value == pytest.approx(1, rel=1e-6)
    assert found.value <= 1 <= found.high


def test_a_hessian_that_is_not_finite_is_refused() -> None:
    for dim in (3, 300):
        with pytest.raises(InputError, match="diverged"):
            largest(lambda v: v * np.nan, dim, 1e-6, np.random.default_rng(0))


def test_only_the_worst_worker_keeps_its_direction() -> None:
    found: list[tuple[int, lanczos.Ritz]] = []
    for worker, value in enumerate([1.0, 3.0, 2.0, 3.5, 0.0]):
        lanczos.keep_worst(found, worker, lanczos.Ritz(value, value, np.ones(4), 0.0, 1, True))
    assert [(worker, len(ritz.vector)) for worker, ritz in found] == [(0, 0), (1, 0), (2, 0), (3, 4), (4, 0)]
