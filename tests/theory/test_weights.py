"""Workers with unequal weights: the theorems with N = 1/sum w_i^2 and weighted constants, against exact runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.algorithms import fedavg, make_algorithm
from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import THEOREMS, evaluate
from fedgauge.theory.expectation import divergence, expect, states

FULL = [name for name, theorem in THEOREMS.items() if theorem.sampling == "full" and name != "fedadam"]


def spectral(matrices: Floats) -> Floats:
    norms: Floats = np.abs(np.linalg.eigvalsh(matrices)).max(axis=-1)
    return norms


def weighted_constants(federation: QuadraticFederation, w: Floats) -> dict[str, float]:
    """L_g, L_h, L_tilde, L_h_rms, kappa and mu of f = sum_i w_i F_i, by their definitions."""
    A_i = federation.hessians
    A = np.tensordot(w, A_i, 1)
    off = A_i - A
    eigenvalues = np.linalg.eigvalsh(A_i)
    return {
        "L_g": float(spectral(A)),
        "L_h": float(np.sqrt(spectral(np.tensordot(w, off @ off, 1)))),
        "L_h_rms": float(np.sqrt(w @ spectral(off) ** 2)),
        "L_tilde": float(spectral(A_i).max()),
        "kappa": float((1 - eigenvalues[:, 0] / np.abs(eigenvalues).max(axis=1)).max()),
        "mu": float(np.linalg.eigvalsh(A)[0]),
    }


@st.composite
def problems(draw: st.DrawFn) -> tuple[QuadraticFederation, tuple[float, ...]]:
    N, d = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    root = rng.normal(size=(N, d, d))
    A = root @ root.swapaxes(1, 2) / d + 0.2 * np.eye(d)
    sigma2 = draw(st.sampled_from([0.0, 0.1, 4.0]))
    weights = tuple(draw(st.lists(st.floats(0.01, 10), min_size=N, max_size=N)))
    return QuadraticFederation(A, rng.normal(size=(N, d)), sigma2=sigma2, start=3 * rng.normal(size=d)), weights


@pytest.mark.parametrize("name", FULL)
@settings(deadline=None, max_examples=30)
@given(problem=problems(), I=st.integers(1, 6), R=st.integers(1, 25), share=st.floats(0.05, 0.98))
def test_no_bound_is_below_what_a_weighted_run_does(
    name: str,
    problem: tuple[QuadraticFederation, tuple[float, ...]],
    I: int,  # noqa: E741
    R: int,
    share: float,
) -> None:
    """Every version but the printed, at a share of its largest rate, with the smallest zeta2 that the proof admits."""
    theorem = THEOREMS[name]
    federation, weights = problem
    if theorem.objectives == "equal Hessians":
        equal = np.broadcast_to(federation.hessians[0], federation.hessians.shape)
        federation = QuadraticFederation(
            equal, federation.linear, sigma2=federation.sigma2, start=federation.first_model
        )
    who = Participation(weights=weights)
    w = who.objective(federation.num_workers)
    known: dict[str, Any] = weighted_constants(federation, w)
    if theorem.objectives == "equal Hessians":
        known["L_h"] = 0.0  # which is exact here, and rounding is not
    A, b = np.tensordot(w, federation.hessians, 1), w @ federation.linear
    x_star = np.linalg.solve(A, -b)
    off = federation.first_model - x_star
    f_star = float(x_star @ b / 2 + w @ federation.constant)
    known |= {"F": float(off @ A @ off / 2), "d0": float(off @ off), "sigma2": federation.sigma2, "beta": 0.5}
    known |= {"I": I, "R": R, "N": who.effective_workers(federation.num_workers), "eta": 1.0}
    for version in (version for version in theorem.versions if version != "printed"):
        limit = float(theorem.evaluate(version, **known, zeta2=1.0, gamma=1e-9).gamma_max)
        if not 0 < limit < np.inf:
            continue
        gamma = share * limit
        parameters = {"gamma": gamma} | ({"beta": 0.5} if theorem.algorithm == "momentum" else {})
        algorithm = make_algorithm(theorem.algorithm, **parameters)
        run: dict[str, Any] = {"local_steps": I, "rounds": R, "participation": who}
        zeta = divergence(federation, states(federation, algorithm, **run), who)
        zeta2 = float((zeta[:, 0] if theorem.zeta_at == "global models" else zeta).max())
        bound = evaluate(name, version, **known, zeta2=zeta2, gamma=gamma)
        steps = theorem.quantity.models == "local steps"
        found = expect(federation, algorithm, **run, iterations=steps)
        if theorem.quantity.measure == "grad2":
            exact = float(np.mean(found.grad2[:-1]))
        elif theorem.quantity.taken == "last":
            exact = found.loss[-1] - f_star
        else:
            assert theorem.contraction is not None
            arrays = {key: np.asarray(value, dtype=float) for key, value in {**known, "gamma": gamma}.items()}
            q = 1 - float(theorem.contraction(version, arrays))
            r = q ** -np.arange(1.0, R + 1)
            exact = float(r @ (np.array(found.loss[:-1]) - f_star) / r.sum())
        # Losses are differences of numbers of the size of F.
        assert exact <= float(bound.total) * (1 + 1e-9) + 1e-11 * known["F"], (version, exact, bound.total)


def test_noise_is_divided_by_the_effective_number_and_no_other() -> None:
    """One Hessian, from x*, gamma = 1, I = 1: E|grad f|^2 is sigma2 sum w_i^2 after a step, and the bound is tight."""
    weights = (6.0, 3.0, 1.0)
    who = Participation(weights=weights)
    assert who.effective_workers(3) == pytest.approx(1 / (0.36 + 0.09 + 0.01))
    federation = QuadraticFederation([[[1.0]]] * 3, [[0.0]] * 3, sigma2=2.0, start=[0.0])
    run = expect(federation, fedavg(1.0), local_steps=1, rounds=1, participation=who)
    assert run.grad2[-1] == pytest.approx(2.0 * 0.46)
    values: dict[str, Any] = {"F": 0, "I": 1, "R": 10**9, "sigma2": 2.0, "L_g": 1, "gamma": 1.0}
    assert float(evaluate("equal-hessians", N=1 / 0.46, **values).total) == pytest.approx(0.92)
    assert float(evaluate("equal-hessians", N=3, **values).total) < 0.92, "N = 3 would be wrong"


def test_equal_weights_are_no_weights_and_one_worker_may_have_all_of_it() -> None:
    assert Participation(weights=(2.0, 2.0, 2.0)).effective_workers(3) == 3.0
    assert Participation().effective_workers(7) == 7.0
    assert Participation(weights=(1.0, 0.0)).effective_workers(2) == 1.0
    with pytest.raises(InputError, match="one entry for each of 4 workers, not 2"):
        Participation(weights=(1.0, 2.0)).effective_workers(4)


def test_the_weighted_divergence_is_that_of_a_plain_loop() -> None:
    federation = QuadraticFederation([[[1.0]], [[3.0]]], [[0.0], [1.0]], start=[1.0])
    who = Participation(weights=(3.0, 1.0))
    found = divergence(federation, states(federation, fedavg(0.5), local_steps=2, rounds=1, participation=who), who)
    A, b, total = 1.5, 0.25, []
    x = np.array([1.0, 1.0])
    for _ in range(2):
        own, mean = np.array([1.0, 3.0]) * x + np.array([0.0, 1.0]), A * x + b
        total.append(float(np.array([0.75, 0.25]) @ (own - mean) ** 2))
        x = x - 0.5 * own
    assert found[0].tolist() == pytest.approx(total)


@pytest.mark.parametrize("name", ["partial", "partial-shared", "partial-without"])
def test_drawn_workers_must_have_equal_weights(name: str, table: dict[str, Any]) -> None:
    """Two equal workers of weights 0.9 and 0.1: a draw multiplies the step by 1.8 or 0.2, and the run diverges."""
    with pytest.raises(InputError, match="N must be a whole number") as raised:
        evaluate(name, **{**table, "N": 1.22, "M": 1})
    assert "variance" in str(raised.value)
    sampling: Any = THEOREMS[name].sampling
    federation = QuadraticFederation([[[1.0]]] * 2, [[0.0]] * 2, start=[1.0])
    who = Participation(sampling, 1, (0.9, 0.1))
    run = expect(federation, fedavg(1.5), local_steps=1, rounds=20, participation=who)
    factor = ((1 - 1.5 * 1.8) ** 2 + (1 - 1.5 * 0.2) ** 2) / 2
    assert run.grad2[-1] == pytest.approx(factor**20)
    # Whatever N is, the theorem for equal weights admits this rate and bounds what grows without end.
    wrong = evaluate(name, F=0.5, I=1, R=20, N=2, M=1, sigma2=0, zeta2=0, L_g=1, L_h=0, gamma=1.5)
    assert wrong.admissible
    assert wrong.total < np.mean(run.grad2[:-1])
