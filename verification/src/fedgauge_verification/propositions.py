"""The propositions and lemmas as checks on numbers: both sides of the inequality, and whether it holds.

Quadratic federations are given as ``hessians`` (N, d, d) and ``linear`` (N, d): F_i = x'A_i x/2 + b_i'x. ``points``
(N, d) hold one model per worker. Local runs are given as ``models`` (..., steps, N, d); leading axes are samples, whose
mean stands for the expectation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.types import Floats
from fedgauge.theory.base import over
from fedgauge.theory.inputs import check_values
from fedgauge.values import Condition, Inequality, Version


def _array(name: str, value: npt.ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    array = np.asarray(value, dtype=float)
    sizes = array.shape[array.ndim - len(shape) :] if array.ndim >= len(shape) else ()
    if len(sizes) != len(shape) or any(want not in (None, size) for want, size in zip(shape, sizes, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} must end in the shape ({wanted}), not have the shape {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"{name} must hold finite numbers, not NaN or infinity.")
    return array


def _square(vectors: Floats) -> Floats:
    return np.asarray(np.sum(vectors * vectors, axis=-1), dtype=float)


def _norms(matrices: Floats) -> Floats:
    return np.asarray(np.linalg.norm(matrices, ord=2, axis=(-2, -1)), dtype=float)


def _hessians(hessians: npt.ArrayLike) -> Floats:
    A_i = _array("hessians", hessians, (None, None, None))
    A_i = _array("hessians", A_i, (A_i.shape[0], A_i.shape[1], A_i.shape[1]))
    if not np.allclose(A_i, A_i.swapaxes(-1, -2), rtol=1e-9, atol=1e-9 * float(np.abs(A_i).max(initial=0.0))):
        raise InputError("hessians must be symmetric, and one is not; take (A + A')/2.")
    return A_i


def constants(hessians: npt.ArrayLike) -> dict[str, float]:
    """Return L_tilde, L_g, L_h (tight), L_h_rms and L_h_paper of a quadratic federation.

    The tight L_h is sqrt(lambda_max(mean (A_i - A)^2)); it never exceeds L_tilde, as L_h_paper = max|A_i - A| may.

    >>> constants([[[1.0]], [[-1.0]], [[-1.0]]])["L_h_paper"]
    1.3333333333333333
    """
    A_i = _hessians(hessians)
    A = A_i.mean(axis=0)
    apart = A_i - A
    return {
        "L_tilde": float(_norms(A_i).max()),
        "L_g": float(_norms(A)),
        "L_h": float(np.sqrt(_norms((apart @ apart).mean(axis=0)))),
        "L_h_rms": float(np.sqrt(np.mean(_norms(apart) ** 2))),
        "L_h_paper": float(_norms(apart).max()),
    }


def _gradients(hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike) -> tuple[Floats, ...]:
    """Return A_i, b_i, x_i and grad F_i(x_i), with shapes that fit."""
    A_i = _hessians(hessians)
    N, d = A_i.shape[:2]
    b_i, x_i = _array("linear", linear, (N, d)), _array("points", points, (N, d))
    return A_i, b_i, x_i, np.einsum("nij,...nj->...ni", A_i, x_i) + b_i


def _deviation(hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return |mean grad F_i(x_i) - grad f(xbar)|^2 and the mean of |x_i - xbar|^2."""
    A_i, b_i, x_i, own = _gradients(hessians, linear, points)
    xbar = x_i.mean(axis=-2)
    at_mean = np.einsum("ij,...j->...i", A_i.mean(axis=0), xbar) + b_i.mean(axis=0)
    return _square(own.mean(axis=-2) - at_mean), _square(x_i - xbar[..., None, :]).mean(axis=-1)


def proposition_5_1(
    hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike
) -> tuple[Inequality, Inequality]:
    """Check that L_tilde serves as L_g and as L_h.

    >>> both = proposition_5_1([[[1.0]], [[-1.0]]], [[0.0], [0.0]], [[1.0], [2.0]])
    >>> [bool(check.holds) for check in both]
    [True, True]
    """
    known = constants(hessians)
    left, spread = _deviation(hessians, linear, points)
    return (
        Inequality("Proposition 5.1, L_g", known["L_g"], known["L_tilde"]),
        Inequality("Proposition 5.1, L_h", left, known["L_tilde"] ** 2 * spread),
    )


def proposition_5_2(
    hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike, gamma: float, L_h: float | None = None
) -> Inequality:
    """Check that one averaged local step stays within gamma^2 L_h^2 mean|x_i - xbar|^2 of a central one.

    The expectation is conditional on all the local models, not on their mean alone. L_h defaults to the tight one.

    >>> check = proposition_5_2([[[1.0]], [[-1.0]]], [[0.0], [0.0]], [[1.0], [2.0]], gamma=0.1)
    >>> round(float(check.left), 6), round(float(check.right), 6)
    (0.0025, 0.0025)
    """
    step = check_values({"gamma": gamma})["gamma"]
    left, spread = _deviation(hessians, linear, points)
    constant = constants(hessians)["L_h"] if L_h is None else L_h
    return Inequality("Proposition 5.2", step**2 * left, step**2 * constant**2 * spread)


def proposition_5_3(hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike) -> Inequality:
    """Check that max|A_i - A| serves as L_h.

    >>> bool(proposition_5_3([[[1.0]], [[-1.0]]], [[0.0], [0.0]], [[1.0], [2.0]]).holds)
    True
    """
    left, spread = _deviation(hessians, linear, points)
    return Inequality("Proposition 5.3", left, constants(hessians)["L_h_paper"] ** 2 * spread)


def proposition_5_4(hessians: npt.ArrayLike, linear: npt.ArrayLike) -> Inequality:
    """Check that zeta = 0 forces L_h = 0: ``max|A_i - A|`` is at most the largest divergence on the unit sphere.

    A worker's divergence (A_i - A)x + b_i - b is at least ``|A_i - A|`` at one of the two unit vectors along its
    leading eigenvector. The reverse fails: with one Hessian the left side is 0, whatever the b_i.

    >>> check = proposition_5_4([[[1.0]], [[1.0]]], [[5.0], [-5.0]])
    >>> float(check.left), float(check.right)
    (0.0, 5.0)
    """
    A_i = _hessians(hessians)
    b_i = _array("linear", linear, A_i.shape[:2])
    apart, shift = A_i - A_i.mean(axis=0), b_i - b_i.mean(axis=0)
    eigenvalues, vectors = np.linalg.eigh(apart)
    lead = np.take_along_axis(vectors, np.abs(eigenvalues).argmax(axis=-1)[:, None, None], axis=-1)[..., 0]
    turned = np.einsum("nij,nj->ni", apart, lead)
    divergence = np.maximum(_square(shift + turned), _square(shift - turned))
    return Inequality("Proposition 5.4", float(np.abs(eigenvalues).max()), float(np.sqrt(divergence.max())))


def lemma_b_1(
    hessians: npt.ArrayLike, linear: npt.ArrayLike, points: npt.ArrayLike, zeta2: float | None = None
) -> Inequality:
    """Check the local gradient deviation against 3 (L_h^2 + L_g^2) mean|x_j - xbar|^2 + 3 zeta2.

    L_h is the tight one; zeta2 is the mean of ``|grad F_j(x_j) - grad f(x_j)|^2`` at the points, the least that
    may be used, unless you give another.

    >>> bool(lemma_b_1([[[1.0]], [[-1.0]]], [[0.0], [3.0]], [[1.0], [2.0]]).holds)
    True
    """
    A_i, b_i, x_i, own = _gradients(hessians, linear, points)
    global_ones = np.einsum("ij,...nj->...ni", A_i.mean(axis=0), x_i) + b_i.mean(axis=0)
    known = constants(A_i)
    _, spread = _deviation(A_i, b_i, x_i)
    divergence = _square(own - global_ones).mean(axis=-1) if zeta2 is None else check_values({"zeta2": zeta2})["zeta2"]
    left = _square(own - own.mean(axis=-2, keepdims=True)).mean(axis=-1)
    return Inequality("Lemma B.1", left, 3 * (known["L_h"] ** 2 + known["L_g"] ** 2) * spread + 3 * divergence)


def _spreads(models: npt.ArrayLike) -> tuple[Floats, Floats, int, int]:
    """Return E mean_i|x_i^k - xhat^k|^2 and E|xhat^k - xhat^0|^2 for each k, the number of steps and of workers."""
    x = _array("models", models, (None, None, None))
    xhat = x.mean(axis=-2)
    apart, moved = _square(x - xhat[..., None, :]).mean(axis=-1), _square(xhat - xhat[..., :1, :])
    samples = tuple(range(apart.ndim - 1))
    return apart.mean(axis=samples), moved.mean(axis=samples), x.shape[-3], x.shape[-2]


def lemma_b_2(models: npt.ArrayLike, gamma: float, zeta2: float, sigma2: float, L_g: float, L_h: float) -> Inequality:
    """Check the spread of one round's local models, k = 0..I-1, against 12 J^3 gamma^2 zeta2 + 4 J^2 gamma^2 sigma2.

    J is I-1, and the claim needs gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I).

    >>> check = lemma_b_2([[[0.0], [0.0]], [[-0.1], [0.1]]], gamma=0.1, zeta2=1, sigma2=0, L_g=1, L_h=0)
    >>> round(float(check.left), 6), round(float(check.right), 6), check.applies
    (0.01, 0.12, True)
    """
    v = check_values({"gamma": gamma, "zeta2": zeta2, "sigma2": sigma2, "L_g": L_g, "L_h": L_h})
    apart, _, I, _ = _spreads(models)  # noqa: E741
    limit = over(1.0, np.sqrt(6 * (v["L_h"] ** 2 + v["L_g"] ** 2)) * I)
    right = v["gamma"] ** 2 * (12 * (I - 1) ** 3 * v["zeta2"] + 4 * (I - 1) ** 2 * v["sigma2"])
    condition = Condition("gamma", "1/(sqrt(6 (L_h^2 + L_g^2)) I)", limit, v["gamma"])
    return Inequality("Lemma B.2", float(apart.sum()), right, (condition,))


def lemma_b_3(models: npt.ArrayLike, gamma: float, grad2: float, sigma2: float, L_g: float, L_h: float) -> Inequality:
    """Check how far the mean of the local models moves in one round, k = 0..I-1.

    The right side is 5 (I-1) gamma^2 sigma2/N + 30 I gamma^2 L_h^2 (sum of spreads) + 30 I (I-1) gamma^2 grad2, with
    grad2 = E|grad f(xbar^r)|^2; the claim needs gamma <= 1/(2 sqrt(3) I L_g).

    >>> check = lemma_b_3([[[1.0], [1.0]], [[0.9], [0.9]]], gamma=0.1, grad2=1, sigma2=0, L_g=1, L_h=0)
    >>> round(float(check.left), 6), round(float(check.right), 6)
    (0.01, 0.6)
    """
    v = check_values({"gamma": gamma, "sigma2": sigma2, "L_g": L_g, "L_h": L_h})
    apart, moved, I, N = _spreads(models)  # noqa: E741
    drift = 30 * I * v["L_h"] ** 2 * apart.sum() + 30 * I * (I - 1) * grad2
    right = v["gamma"] ** 2 * (5 * (I - 1) * v["sigma2"] / N + drift)
    condition = Condition("gamma", "1/(2 sqrt(3) I L_g)", over(1.0, 2 * np.sqrt(3.0) * I * v["L_g"]), v["gamma"])
    return Inequality("Lemma B.3", float(moved.max()), right, (condition,))


def lemma_b_4(
    models: npt.ArrayLike,
    I: int,  # noqa: E741
    gamma: float,
    beta: float,
    zeta2: float,
    sigma2: float,
    L_g: float,
    L_h: float,
    version: Version = "corrected",
) -> Inequality:
    """Check the mean spread with momentum over all local steps t = 0..T-1.

    The right side is (2 gamma^2 I sigma2/(1-beta)^2 + 6 gamma^2 I^2 zeta2/(1-beta)^2)/(1 - s) with
    s = 6 gamma^2 I^2 (L_h^2 + L_g^2)/(1-beta)^2 < 1. Print has 1-beta^2 in the first denominator, which is wrong.

    >>> kwargs = dict(I=2, gamma=0.1, beta=0.9, zeta2=0, sigma2=1, L_g=0.1, L_h=0)
    >>> checks = [lemma_b_4([[[0.0], [0.0]]], version=v, **kwargs) for v in ("printed", "corrected")]
    >>> [round(float(check.right), 3) for check in checks]
    [0.277, 5.263]
    """
    if version not in ("printed", "corrected"):
        raise InputError(f"Lemma B.4 has no version {version!r}; choose one of printed, corrected.")
    v = check_values({"I": I, "gamma": gamma, "beta": beta, "zeta2": zeta2, "sigma2": sigma2, "L_g": L_g, "L_h": L_h})
    apart, _, _, _ = _spreads(models)
    rest2 = (1 - v["beta"]) ** 2
    noise = 1 - v["beta"] ** 2 if version == "printed" else rest2
    share = 6 * v["gamma"] ** 2 * v["I"] ** 2 * (v["L_h"] ** 2 + v["L_g"] ** 2) / rest2
    size = 2 * v["gamma"] ** 2 * v["I"] * v["sigma2"] / noise + 6 * v["gamma"] ** 2 * v["I"] ** 2 * v["zeta2"] / rest2
    condition = Condition("6 gamma^2 I^2 (L_h^2 + L_g^2)/(1-beta)^2", "1, below it", np.nextafter(1.0, 0.0), share)
    right = size / (1 - share) if share < 1 else np.inf
    return Inequality("Lemma B.4", float(apart.mean()), float(right), (condition,))


def lemma_b_5(x: float, k: int) -> Inequality:
    """Check sum_{l<k} l^2 x^l <= k^2 x^(k+2)/(x-1)^3 for x > 1; both sides are over x^k, so that neither overflows.

    >>> check = lemma_b_5(2.0, 3)  # 18/8 against 288/8
    >>> float(check.left), float(check.right), check.applies
    (2.25, 36.0, True)
    """
    steps = np.arange(count("k", k, most=10**7), dtype=float)
    base = positive("x", x)
    left = float(np.sum(steps * steps * base ** (steps - k)))
    right = k * k * base * base / (base - 1) ** 3 if base > 1 else np.inf
    return Inequality("Lemma B.5", left, right, (Condition("1/x", "1, below it", np.nextafter(1.0, 0.0), 1 / base),))


def lemma_4_of_yu(models: npt.ArrayLike, gradients: npt.ArrayLike, gamma: float, beta: float) -> Inequality:
    """Check how far the point that Theorem A.5's proof follows is from the mean model, over all steps t = 0..T-1.

    ``models`` (..., T, d) are the mean models xhat^t and ``gradients`` (..., T, d) the averaged stochastic gradients at
    these steps. zhat^t - xhat^t is beta/(1-beta) (xhat^t - xhat^(t-1)), and 0 for t = 0; the right side is
    gamma^2 beta^2/(1-beta)^4 times the sum of the squared gradients. Yu et al. 2019 state it without a condition.

    >>> check = lemma_4_of_yu([[0.0], [-0.1]], [[1.0], [1.0]], gamma=0.1, beta=0.5)
    >>> round(float(check.left), 6), round(float(check.right), 6)
    (0.01, 0.08)
    """
    v = check_values({"gamma": gamma, "beta": beta})
    x = _array("models", models, (None, None))
    g = _array("gradients", gradients, x.shape[-2:])
    rest = 1 - v["beta"]
    moved = _square((x[..., 1:, :] - x[..., :-1, :]) * (v["beta"] / rest)).sum(axis=-1)
    squares = _square(g).sum(axis=-1)
    return Inequality(
        "Lemma 4 of Yu et al.", float(moved.mean()), v["gamma"] ** 2 * v["beta"] ** 2 / rest**4 * squares.mean()
    )
