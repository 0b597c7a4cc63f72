from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.strategies import federations

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics


def everyone(federation: QuadraticFederation) -> Any:
    return np.arange(federation.num_workers)


def noise_of(federation: QuadraticFederation, seed: int, round: int, workers: Any, copies: Any, steps: int) -> Any:
    streams = Streams(seed, Purpose.NOISE)
    return torch.stack(list(federation.draws(streams, round, np.array(workers), np.array(copies), steps)))


def random_rows(federation: QuadraticFederation, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(federation.num_workers, federation.dim, generator=generator, dtype=torch.float64)


# -- operations on rows -------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(federation=federations())
def test_rows_agree_with_autograd(federation: QuadraticFederation) -> None:
    A, b, c = (torch.tensor(part) for part in (federation.hessians, federation.linear, federation.constant))
    rows, vectors, workers = random_rows(federation), random_rows(federation, 1), everyone(federation)
    losses, gradients = federation.evaluate(rows, workers)
    products = federation.hessian_products(rows, vectors, workers)
    for i in workers:

        def objective(x: torch.Tensor, i: int = i) -> torch.Tensor:
            return x @ A[i] @ x / 2 + b[i] @ x + c[i]

        torch.testing.assert_close(losses[i], objective(rows[i]))
        torch.testing.assert_close(gradients[i], torch.autograd.functional.jacobian(objective, rows[i]))  # type: ignore[no-untyped-call]
        _, product = torch.autograd.functional.hvp(objective, rows[i], vectors[i])  # type: ignore[no-untyped-call]
        torch.testing.assert_close(products[i], product)
    torch.testing.assert_close(federation.losses(rows, workers), losses)
    torch.testing.assert_close(federation.gradients(rows, workers), gradients)


def test_rows_follow_the_named_workers() -> None:
    federation = random_quadratics(6, 3, seed=1)
    rows = random_rows(federation)
    whole = federation.gradients(rows, everyone(federation))
    for chosen in ([4], [1, 2, 3], [5, 0, 3], [2, 2, 2], [0, 2]):
        workers = np.array(chosen)
        torch.testing.assert_close(federation.gradients(rows[workers], workers), whole[workers])


def test_noise_has_the_stated_variance_and_no_mean() -> None:
    federation = random_quadratics(2, 5, sigma2=3.0)
    draws = torch.stack(
        list(federation.draws(Streams(0, Purpose.NOISE), 0, np.array([0, 1]), np.array([0, 0]), 20_000))
    )
    variance = draws.square().sum(dim=2).mean(dim=0)
    # The total variance of 5 coordinates is estimated from 20,000 draws to about 0.4%; 5 deviations are 2.2%.
    torch.testing.assert_close(variance, torch.full((2,), 3.0, dtype=torch.float64), rtol=0.022, atol=0)
    assert draws.mean(dim=0).abs().max() < 5 * (3 / 5 / 20_000) ** 0.5
    assert abs(torch.corrcoef(draws.flatten(1).T) - torch.eye(10)).max() < 5 / 20_000**0.5


def test_noise_is_addressed() -> None:
    federation = random_quadratics(9, 3, sigma2=1.0)

    def noise(seed: int, round: int, worker: int, copy: int, steps: int = 2) -> Any:
        return torch.stack(
            list(federation.draws(Streams(seed, Purpose.NOISE), round, np.array([worker]), np.array([copy]), steps))
        )

    assert torch.equal(noise(0, 5, 7, 0), noise(0, 5, 7, 0, steps=4)[:2])
    together = noise_of(federation, 0, 5, [3, 7], [0, 0], 2)
    assert torch.equal(together[:, 1:], noise(0, 5, 7, 0))
    others = [noise(1, 5, 7, 0), noise(0, 6, 7, 0), noise(0, 5, 8, 0), noise(0, 5, 7, 1)]
    assert all(not torch.equal(noise(0, 5, 7, 0), other) for other in others)


# -- constants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_flat_direction_is_not_strongly_convex_by_rounding(seed: int) -> None:
    designs = np.random.default_rng(seed).standard_normal((3, 1, 6))  # together of rank 3
    federation = QuadraticFederation.least_squares(designs, np.ones((3, 1)))
    assert federation.constants()["mu"].value == 0


def test_constants_of_a_federation_worked_by_hand() -> None:
    # A = diag(1, 0), off-diagonal parts diag(0, ±1).
    federation = QuadraticFederation([[[1, 0], [0, 1]], [[1, 0], [0, -1]]], [[0, 0], [0, 0]])
    found = {name: e.value for name, e in federation.constants().items()}
    expected = {"L_tilde": 1, "L_g": 1, "L_h": 1, "L_h_paper": 1, "mu": 0, "kappa": 2, "varphi": 2, "sigma": 0}
    # A value is the safe end of an interval that allows for rounding, a few units of 1e-15 wide.
    assert found == pytest.approx(expected, abs=2e-14)


def test_the_papers_value_of_L_h_can_exceed_L_tilde() -> None:  # noqa: N802
    federation = QuadraticFederation([[[1.0]], [[-1.0]], [[-1.0]]], [[0.0]] * 3)
    constants = federation.constants()
    assert constants["L_h_paper"].value == pytest.approx(4 / 3)
    assert constants["L_h"].value == pytest.approx(8**0.5 / 3)
    assert constants["L_h"].value < constants["L_tilde"].low <= 1 <= constants["L_tilde"].value


@settings(max_examples=60)
@given(federation=federations(), data=st.data())
def test_laws_of_the_constants(federation: QuadraticFederation, data: st.DataObject) -> None:
    c = {name: e.value for name, e in federation.constants().items()}
    slack = 1 + 1e-12
    assert c["L_h"] <= c["L_h_paper"] * slack + 1e-15
    assert c["L_h"] <= c["L_tilde"] * slack
    assert c["L_g"] <= c["L_tilde"] * slack
    assert c["mu"] <= c["L_g"] * slack
    assert 0 <= c["kappa"] <= 2 * slack
    if np.linalg.eigvalsh(federation.hessians).min() >= 0:
        assert c["L_h"] <= c["L_tilde"] / 2 * slack
    # Assumption 4.2 by its definition, at random models and at the displacement that attains it.
    off = federation.hessians - federation.mean_hessian
    direction = np.linalg.eigh(np.matmul(off, off).mean(axis=0))[1][:, -1]
    center = random_rows(federation, 1)[0]
    for displacement, attained in ((random_rows(federation), False), (torch.tensor(off @ direction), True)):
        displacement = displacement - displacement.mean(dim=0)
        spread = float(displacement.square().sum(dim=1).mean())
        workers = everyone(federation)
        gap = federation.gradients(center + displacement, workers) - federation.gradients(
            center.expand_as(displacement), workers
        )
        left = float(gap.mean(dim=0).square().sum())
        assert left <= c["L_h"] ** 2 * spread * slack + 1e-12
        if attained:
            assert left == pytest.approx(c["L_h"] ** 2 * spread, rel=1e-9, abs=1e-15)


@settings(max_examples=30)
@given(federation=federations(shape="mean-convex"))
def test_the_minimiser_agrees_with_scipy(federation: QuadraticFederation) -> None:
    x_star, f_star = federation.minimiser()
    assert x_star is not None

    def f(x: Any) -> float:
        rows = torch.tensor(x).expand(federation.num_workers, -1)
        return float(federation.losses(rows, everyone(federation)).mean())

    found = minimize(f, np.zeros(federation.dim), method="BFGS", options={"gtol": 1e-8})
    assert f_star == pytest.approx(f(x_star), rel=1e-9, abs=1e-9)
    assert f_star <= found.fun + 1e-9 * max(1, abs(f_star))
    # BFGS differences the function, so its point is good to about the root of rounding.
    np.testing.assert_allclose(x_star, found.x, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(x_star).max()))


@pytest.mark.parametrize(
    ("hessian", "linear", "x_star", "f_star"),
    [
        ([[2.0]], [4.0], [-2.0], -4.0),
        ([[-1.0]], [0.0], None, -np.inf),
        ([[0.0]], [1.0], None, -np.inf),
        ([[0.0]], [0.0], [0.0], 0.0),
        ([[2.0, 0.0], [0.0, 0.0]], [2.0, 0.0], [-1.0, 0.0], -1.0),
        ([[2.0, 0.0], [0.0, 0.0]], [2.0, 1e-3], None, -np.inf),
    ],
)
def test_the_least_value_where_there_is_one_many_or_none(hessian: Any, linear: Any, x_star: Any, f_star: float) -> None:
    found, least = QuadraticFederation([hessian], [linear]).minimiser()
    assert least == pytest.approx(f_star)
    assert found is None if x_star is None else np.allclose(found, x_star)  # type: ignore[arg-type]


@given(federation=federations(), seed=st.integers(0, 9))
def test_zeta_is_the_distance_of_the_gradients(federation: QuadraticFederation, seed: int) -> None:
    x = random_rows(federation, seed)[:2]
    for point, row in zip(x, federation.zeta(x.numpy()), strict=True):
        gradients = federation.gradients(point.expand(federation.num_workers, -1), everyone(federation))
        distances = (gradients - gradients.mean(dim=0)).norm(dim=1)
        np.testing.assert_allclose(row, distances.numpy(), rtol=1e-9, atol=1e-9)


def test_kappa_counts_a_zero_hessian_as_one() -> None:
    federation = QuadraticFederation([[[0.0]], [[2.0]]], [[0.0], [0.0]])
    assert federation.constants()["kappa"].value == 1.0


# -- generators ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    federation_seed=st.integers(0, 2**32),
    shape=st.sampled_from(["convex", "mean-convex", "indefinite"]),
    num_workers=st.integers(2, 6),
    dim=st.integers(2, 6),
    conditioning=st.floats(1, 100),
    smoothness=st.floats(0.01, 100),
)
def test_generators_give_what_was_set(
    federation_seed: int, shape: Any, num_workers: int, dim: int, conditioning: float, smoothness: float
) -> None:
    def made(hessian_spread: float, linear_spread: float = 2.0) -> QuadraticFederation:
        return random_quadratics(
            num_workers,
            dim,
            shape=shape,
            hessian_spread=hessian_spread,
            linear_spread=linear_spread,
            conditioning=conditioning,
            smoothness=smoothness,
            seed=federation_seed,
        )

    half, full, none = made(0.5), made(1.0), made(0.0)
    L_h = [f.constants()["L_h"].value for f in (none, half, full)]
    assert L_h[0] == 0.0
    assert L_h[2] == pytest.approx(2 * L_h[1])
    assert L_h[2] > 0
    for federation in (half, full, none):
        eigenvalues = np.linalg.eigvalsh(federation.mean_hessian)
        assert np.abs(eigenvalues).max() == pytest.approx(smoothness)
        assert np.abs(eigenvalues).max() / np.abs(eigenvalues).min() == pytest.approx(conditioning)
        assert (eigenvalues.min() > 0) == (shape != "indefinite")
        assert federation.zeta(np.zeros(dim)).max() == pytest.approx(2.0)
        if shape == "convex":
            assert np.linalg.eigvalsh(federation.hessians).min() >= -1e-9 * smoothness
    assert made(0.0, linear_spread=0.0).zeta(np.ones(dim)).max() == 0.0


def test_least_squares_is_the_sum_of_squares() -> None:
    generator = np.random.default_rng(0)
    U, v, x = generator.standard_normal((3, 5, 2)), generator.standard_normal((3, 5)), generator.standard_normal(2)
    federation = QuadraticFederation.least_squares(U, v, scale=0.7)
    losses = federation.losses(torch.tensor(x).expand(3, -1), everyone(federation))
    np.testing.assert_allclose(losses.numpy(), 0.35 * ((U @ x - v) ** 2).sum(axis=1))


# -- files --------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(federation=federations())
def test_a_file_gives_back_every_bit(federation: QuadraticFederation, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("files") / "federation.json"
    federation.write(path)
    again = QuadraticFederation.read(path)
    assert again.digest == federation.digest
    assert again.to_json() == federation.to_json()


def test_optional_entries_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"hessians": [[[1.0]]], "linear": [[1.0]]}))
    federation = QuadraticFederation.read(path)
    assert (federation.sigma2, federation.constant.tolist(), federation.first_model.tolist()) == (0.0, [0.0], [0.0])


def test_the_digest_tells_federations_apart() -> None:
    base: dict[str, Any] = {"hessians": [[[1.0]]], "linear": [[1.0]], "constant": [0.0], "sigma2": 0.0, "start": [0.0]}
    changed: list[dict[str, Any]] = [
        {"hessians": [[[2.0]]]},
        {"linear": [[2.0]]},
        {"constant": [1.0]},
        {"sigma2": 1.0},
        {"start": [1.0]},
    ]
    digests = {QuadraticFederation.from_json({**base, **change}).digest for change in [{}, *changed]}
    assert len(digests) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_workers": 0}, "num_workers must be a whole number of at least 1"),
        ({"dim": 0}, "dim must be"),
        ({"shape": "conve"}, "did you mean convex"),
        ({"hessian_spread": 1.5}, "hessian_spread must be from 0 to 1"),
        ({"linear_spread": -1.0}, "linear_spread must be"),
        ({"conditioning": 0.5}, "conditioning must be at least 1"),
        ({"smoothness": float("nan")}, "smoothness must be"),
        ({"sigma2": -1.0}, "sigma2 must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_a_generator_refuses_what_it_cannot_make(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        random_quadratics(**arguments)
