"""The propositions and lemmas hold on random quadratic federations, and are tight where they should be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge.base.types import Floats
from fedgauge_verification.propositions import (
    constants,
    lemma_4_of_yu,
    lemma_b_1,
    lemma_b_2,
    lemma_b_3,
    lemma_b_4,
    lemma_b_5,
    proposition_5_1,
    proposition_5_2,
    proposition_5_3,
    proposition_5_4,
)

SEEDS = range(12)


def federation(seed: int) -> tuple[Floats, Floats, Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    N, d = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    A = rng.normal(size=(N, d, d))
    return (A + A.swapaxes(1, 2)) / 2, rng.normal(size=(N, d)), rng.normal(size=(N, d)), rng


@pytest.mark.parametrize("seed", SEEDS)
def test_propositions(seed: int) -> None:
    A, b, x, _ = federation(seed)
    checks = [*proposition_5_1(A, b, x), proposition_5_2(A, b, x, 0.1), proposition_5_3(A, b, x)]
    checks += [proposition_5_4(A, b), proposition_5_4(A, 0 * b), lemma_b_1(A, b, x)]
    assert all(check.holds for check in checks), checks


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tight_constant_is_attained(seed: int) -> None:
    A, b, _, _ = federation(seed)
    apart = A - A.mean(axis=0)
    _, vectors = np.linalg.eigh(np.mean(apart @ apart, axis=0))
    attaining = apart @ vectors[:, -1]  # sums to zero over workers
    check = proposition_5_2(A, b, attaining, gamma=1.0)
    assert check.left == pytest.approx(check.right, rel=1e-9, abs=1e-12)
    known = constants(A)
    order = [known[name] for name in ("L_h", "L_h_rms", "L_h_paper")]
    assert order == sorted(order)
    assert known["L_h"] <= known["L_tilde"] * (1 + 1e-12)


def test_the_papers_constant_may_exceed_local_smoothness() -> None:
    known = constants([[[1.0]], [[-1.0]], [[-1.0]]])
    assert known["L_h_paper"] == pytest.approx(4 / 3)
    assert known["L_h"] == pytest.approx(8**0.5 / 3)
    assert known["L_tilde"] == 1.0


def test_the_mean_square_may_exceed_local_smoothness() -> None:
    d = 6
    A = np.eye(d) - 2 * np.eye(d)[:, :, None] * np.eye(d)[:, None, :]  # why ``prior`` takes 2 L_tilde for L_h_rms
    known = constants(A)
    assert known["L_tilde"] == pytest.approx(1)
    assert known["L_h_rms"] == pytest.approx(2 - 2 / d)


def run(A: Floats, b: Floats, gamma: float, I: int, beta: float, noise: Floats, x: Floats) -> Floats:  # noqa: E741
    """Local steps of all workers from x, momentum averaged with the models; noise has shape (samples, R I, N, d)."""
    samples, T = noise.shape[:2]
    models = np.broadcast_to(x, (samples, *b.shape)).copy()
    buffer = np.zeros_like(models)
    seen = []
    for t in range(T):
        if t % I == 0:
            models[:] = models.mean(axis=1, keepdims=True)
            buffer[:] = buffer.mean(axis=1, keepdims=True)
        seen.append(models.copy())
        buffer = beta * buffer + np.einsum("nij,snj->sni", A, models) + b + noise[:, t]
        models = models - gamma * buffer
    return np.stack(seen, axis=1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_lemmas_on_one_round(seed: int, sigma: float) -> None:
    A, b, x, rng = federation(seed)
    known, I, d = constants(A), 2 + seed % 5, b.shape[1]  # noqa: E741
    L_g, L_h = known["L_g"], known["L_h"]
    gamma = min(1 / (np.sqrt(6 * (L_h**2 + L_g**2)) * I), 1 / (2 * np.sqrt(3) * I * L_g))
    noise = sigma / np.sqrt(d) * rng.normal(size=(400 if sigma else 1, I, *b.shape))
    models = run(A, b, gamma, I, 0.0, noise, x[0])
    own = np.einsum("nij,sknj->skni", A, models) + b
    central = np.einsum("ij,sknj->skni", A.mean(axis=0), models) + b.mean(axis=0)
    zeta2 = float(np.sum((own - central) ** 2, axis=-1).mean(axis=(0, 2)).max())
    grad2 = float(np.sum((A.mean(axis=0) @ x[0] + b.mean(axis=0)) ** 2))
    checks = [
        lemma_b_2(models, gamma, zeta2, sigma**2, L_g, L_h),
        lemma_b_3(models, gamma, grad2, sigma**2, L_g, L_h),
    ]
    for check in checks:
        assert check.applies
        assert check.holds, check


def test_lemma_b_4_as_printed_is_false() -> None:
    N, I, beta, gamma = 40, 64, 0.9, 1e-4  # noqa: E741
    rng = np.random.default_rng(0)
    A, b = np.full((N, 1, 1), 0.01), np.zeros((N, 1))
    models = run(A, b, gamma, I, beta, rng.normal(size=(50, I, N, 1)), np.zeros(1))
    printed, corrected = (
        lemma_b_4(models, I, gamma, beta, 0.0, 1.0, L_g=0.01, L_h=0.0, version=version)
        for version in ("printed", "corrected")
    )
    assert printed.applies
    assert not printed.holds
    assert corrected.holds


@given(x=st.fractions(1, 50).filter(lambda x: x > Fraction(1001, 1000)), k=st.integers(1, 60))
def test_lemma_b_5_in_rationals(x: Fraction, k: int) -> None:
    exact = sum((level**2 * x**level for level in range(k)), Fraction(0)) / x**k
    right = k**2 * x**2 / (x - 1) ** 3
    assert exact <= right
    check = lemma_b_5(float(x), k)
    assert check.applies
    assert check.holds
    assert float(check.left) == pytest.approx(float(exact), rel=1e-9)
    # x - 1 of a float near 1 has lost digits, and its cube three times as many.
    assert float(check.right) == pytest.approx(float(right), rel=1e-9)


def test_lemma_b_5_needs_x_above_one_and_cannot_lose_its_square() -> None:
    assert not lemma_b_5(1.0, 5).applies
    assert not lemma_b_5(0.5, 5).applies
    # For large x the left side is (k-1)^2/x and the right k^2/x: with k^2 - 2k for k^2 it would be false.
    check = lemma_b_5(1e6, 30)
    assert float(check.left) == pytest.approx(float(check.right) * (29 / 30) ** 2, rel=1e-5)
    assert check.left > check.right * (30**2 - 60) / 30**2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.95])
def test_lemma_4_of_yu_on_runs_with_momentum(seed: int, beta: float) -> None:
    A, b, x, rng = federation(seed)
    I, gamma = 1 + seed % 4, 0.05  # noqa: E741
    noise = rng.normal(size=(3, 5 * I, *b.shape))
    models = run(A, b, gamma, I, beta, noise, x[0])
    gradients = (np.einsum("nij,stnj->stni", A, models) + b + noise).mean(axis=2)
    check = lemma_4_of_yu(models.mean(axis=2), gradients, gamma, beta)
    assert check.holds
    if beta == 0:
        assert check.left == check.right == 0


def test_lemma_4_of_yu_is_reached_by_constant_gradients() -> None:
    """The buffer tends to g/(1-beta), so that a smaller constant would be wrong."""
    gamma, beta, T = 0.1, 0.9, 20_000
    buffer = (1 - beta ** np.arange(T)) / (1 - beta)  # u^t, the buffer before step t
    models = -gamma * np.cumsum(buffer)[:, None]
    check = lemma_4_of_yu(models, np.ones((T, 1)), gamma, beta)
    assert check.holds
    assert check.left > 0.999 * check.right
