"""The intervals of a quadratic's constants hold the truth, as 60 digits give it."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import fedgauge as fg
from fedgauge import QuadraticFederation
from fedgauge.values import Estimate

mpmath.mp.dps = 60


def _eigenvalues(matrix: Any) -> list[Any]:
    return sorted(mpmath.eigsy(matrix, eigvals_only=True))


def _mean(rows: list[Any]) -> Any:
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total / len(rows)


def truth(federation: QuadraticFederation) -> dict[str, Any]:
    """The constants from the same floats, in exact sums and 60 digits."""
    local = [mpmath.matrix(matrix.tolist()) for matrix in federation.hessians]
    linear = [mpmath.matrix(vector.tolist()) for vector in federation.linear]
    A, b = _mean(local), _mean(linear)
    spectra = [_eigenvalues(matrix) for matrix in local]
    norms = [max(abs(values[0]), abs(values[-1])) for values in spectra]
    off = [matrix - A for matrix in local]
    apart = [max(map(abs, _eigenvalues(matrix))) for matrix in off]
    square = max(_eigenvalues(_mean([matrix * matrix for matrix in off])))
    own = _eigenvalues(A)
    found = {
        "L_tilde": max(norms),
        "L_g": max(map(abs, own)),
        "L_h": mpmath.sqrt(max(square, mpmath.mpf(0))),
        "L_h_paper": max(apart),
        "mu": own[0],
        "kappa": max(1 - values[0] / norm for values, norm in zip(spectra, norms, strict=True)),
        "sigma": mpmath.sqrt(mpmath.mpf(federation.sigma2)),
    }
    if max(apart) == 0:
        found["zeta"] = max(mpmath.norm(vector - b) for vector in linear)
    if own[0] > 0:
        best, first = mpmath.lu_solve(A, -b), mpmath.matrix(federation.first_model.tolist())
        away = first - best
        constant = _mean([mpmath.mpf(float(number)) for number in federation.constant])
        found["d0"] = (away.T * away)[0]
        found["F"] = (away.T * A * away)[0] / 2
        found["f_star"] = (b.T * best)[0] / 2 + constant
    return found


def estimates(federation: QuadraticFederation) -> dict[str, Estimate]:
    return {**federation.constants(), **federation.constants_at()}


CASES = {
    "convex": lambda seed: fg.random_quadratics(5, 6, sigma2=0.3, seed=seed),
    "mean-convex": lambda seed: fg.random_quadratics(4, 5, shape="mean-convex", hessian_spread=0.9, seed=seed),
    "indefinite": lambda seed: fg.random_quadratics(3, 4, shape="indefinite", seed=seed),
    "ill-conditioned": lambda seed: fg.random_quadratics(4, 5, conditioning=1e9, linear_spread=50.0, seed=seed),
    "many workers": lambda seed: fg.random_quadratics(40, 3, hessian_spread=0.5, smoothness=7.0, seed=seed),
    "one Hessian": lambda seed: fg.random_quadratics(6, 4, hessian_spread=0.0, linear_spread=1e6, seed=seed),
    "far start": lambda seed: QuadraticFederation(
        fg.random_quadratics(3, 4, seed=seed).hessians, [[1e-3] * 4] * 3, [1e6, 2e6, 1.0], start=[1e5, -3.0, 0.1, 0.0]
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_every_interval_holds_the_truth_and_the_value_is_its_safe_end(case: str, seed: int) -> None:
    federation = CASES[case](seed)
    found = estimates(federation)
    for symbol, value in truth(federation).items():
        estimate = found[symbol]
        assert mpmath.mpf(estimate.low) <= value <= mpmath.mpf(estimate.high), symbol
        if symbol == "mu":
            assert estimate.value <= value
        elif symbol != "f_star":
            assert estimate.value >= value, symbol


def test_the_intervals_are_as_narrow_as_rounding() -> None:
    for estimate in estimates(fg.random_quadratics(5, 6, hessian_spread=0.0, sigma2=0.3)).values():
        assert estimate.kind == "exact"
        assert estimate.high - estimate.low <= 1e-10 * abs(estimate.value)


def test_the_rounded_number_itself_is_sometimes_too_small() -> None:
    """This is why an interval is needed: the nearest floats alone are below the truth in some federations."""
    below = 0
    for seed in range(12):
        federation = fg.random_quadratics(4, 5, seed=seed)
        below += float(np.abs(np.linalg.eigvalsh(federation.mean_hessian)).max()) < truth(federation)["L_g"]
    assert below > 0


def test_L_h_is_0_only_for_hessians_that_are_equal_to_the_bit() -> None:  # noqa: N802
    hessian = fg.random_quadratics(1, 4).hessians[0]
    same = QuadraticFederation([hessian] * 3, [[0.0] * 4] * 3).constants()["L_h"]
    assert (same.low, same.value, same.kind) == (0.0, 0.0, "exact")
    other = hessian.copy()
    other[0, 0] = np.nextafter(other[0, 0], 2.0)
    assert QuadraticFederation([hessian, hessian, other], [[0.0] * 4] * 3).constants()["L_h"].value > 0


def test_a_gap_that_is_not_proved_is_not_certain() -> None:
    """b = 1e-13 along a direction of curvature 1e-300 lets f fall to about -1e274, which rounding hides."""
    federation = QuadraticFederation([[[1.0, 0.0], [0.0, 1e-300]]], [[1.0, 1e-13]])
    assert not federation.constants_at()["F"].certain


def test_a_coordinate_that_changes_nothing_leaves_the_gap_proved() -> None:
    federation = QuadraticFederation([[[2.0, 0.0], [0.0, 0.0]]], [[2.0, 0.0]], start=[0.0, 5.0])
    gap = federation.constants_at()["F"]
    assert gap.kind == "exact"
    assert gap.low <= 1.0 <= gap.value == pytest.approx(1.0, rel=1e-13)
