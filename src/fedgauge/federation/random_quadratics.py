"""Random federations of quadratics whose heterogeneity is set by the caller.

f has Hessian A with eigenvalues between L_g / conditioning and L_g. The workers' Hessians spread around A by
``hessian_spread`` (which sets L_h; with 0 it is exactly 0) and their linear parts around b by ``linear_spread``
(which is zeta at x = 0).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from fedgauge.base.errors import InputError, count, nearest, non_negative, positive
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge.federation.quadratic import QuadraticFederation

Shape = Literal["convex", "mean-convex", "indefinite"]


def _orthogonal(generator: np.random.Generator, dim: int) -> Floats:
    """A rotation drawn uniformly."""
    q, r = np.linalg.qr(generator.standard_normal((dim, dim)))
    rotation: Floats = q * np.sign(np.diag(r))
    return rotation


def _centred_directions(generator: np.random.Generator, num_workers: int, dim: int) -> Floats:
    """Symmetric matrices that sum to zero, the largest of spectral norm one."""
    raw = generator.standard_normal((num_workers, dim, dim))
    raw = raw + raw.swapaxes(1, 2)
    raw -= raw.mean(axis=0)
    largest = np.abs(np.linalg.eigvalsh(raw)).max()
    directions: Floats = raw / largest if largest > 0 else raw
    return directions


def random_quadratics(
    num_workers: int = 10,
    dim: int = 20,
    *,
    shape: Shape = "convex",
    hessian_spread: float = 0.2,
    linear_spread: float = 1.0,
    conditioning: float = 10.0,
    smoothness: float = 1.0,
    sigma2: float = 0.0,
    seed: int = 0,
) -> QuadraticFederation:
    """Draw a federation of quadratics.

    Args:
        num_workers: N.
        dim: d.
        shape: ``convex`` (every F_i is convex), ``mean-convex`` (f is, single workers need not be) or
            ``indefinite`` (f is not convex and has no least value).
        hessian_spread: from 0 to 1. Worker i has Hessian A^(1/2) (1 + spread S_i) A^(1/2) where ``convex``,
            A + spread L_g S_i otherwise, where the S_i sum to zero and the largest ‖S_i‖ is 1. L_h is proportional to
            the spread.
        linear_spread: the largest ‖b_i - b‖.
        conditioning: largest over smallest absolute eigenvalue of A.
        smoothness: L_g.
        sigma2: total variance of the gradient noise.
        seed: chooses the federation; with the same seed, the spreads only stretch the same directions.

    >>> federation = random_quadratics(4, 3, hessian_spread=0.0, linear_spread=100.0)
    >>> federation.constants()["L_h"].value, round(float(federation.zeta([0.0] * 3).max()), 6)
    (0.0, 100.0)
    """
    count("num_workers", num_workers)
    count("dim", dim)
    if shape not in get_args(Shape):
        raise InputError(f"shape must not be {shape!r}; {nearest(shape, get_args(Shape))}")
    non_negative("linear_spread", linear_spread)
    positive("smoothness", smoothness)
    if positive("conditioning", conditioning) < 1:
        raise InputError(f"conditioning must be at least 1, not {conditioning!r}.")
    if non_negative("hessian_spread", hessian_spread) > 1:
        raise InputError(f"hessian_spread must be from 0 to 1, not {hessian_spread!r}.")
    generator = Streams(seed, Purpose.PROBLEM).at()
    eigenvalues = smoothness * np.geomspace(1.0, 1.0 / conditioning, dim)
    if shape == "indefinite":
        eigenvalues[-1::-2] *= -1
    rotation = _orthogonal(generator, dim)
    directions = hessian_spread * _centred_directions(generator, num_workers, dim)
    if shape == "convex":
        root = rotation * np.sqrt(eigenvalues)
        hessians = root @ (np.eye(dim) + rotation.T @ directions @ rotation) @ root.T
    else:
        hessians = (rotation * eigenvalues) @ rotation.T + smoothness * directions
    shifts = generator.standard_normal((num_workers, dim))
    shifts -= shifts.mean(axis=0)
    longest = np.linalg.norm(shifts, axis=1).max()
    if longest > 0:
        shifts *= linear_spread / longest
    return QuadraticFederation(
        hessians=(hessians + hessians.swapaxes(1, 2)) / 2,
        linear=generator.standard_normal(dim) + shifts,
        sigma2=sigma2,
        start=generator.standard_normal(dim),
    )
