"""Where heterogeneity comes from: zeta_rms^2 and L_h^2, divided exactly among workers and blocks of parameters.

Both are sums over workers and coordinates. If u is the direction in which L_h is attained at the model,

    zeta_rms^2 = sum_i w_i |∇F_i - ∇f|^2,    L_h^2 = sum_i w_i |(H_i - H) u|^2,

so that worker i and block b contribute w_i times the squared norm of that block, and the contributions add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Floats
from fedgauge.federation.protocols import HasModule, Indices, Rows
from fedgauge.measurement.lanczos import largest
from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.passes import Meter, Passes
from fedgauge.simulation.workers import Lane


def blocks(federation: Rows) -> list[tuple[str, int]]:
    """The names and first positions of a federation's blocks of parameters: a module's named parameters, or one block.

    >>> from fedgauge import random_quadratics
    >>> blocks(random_quadratics(2, 3))
    [('model', 0)]
    """
    if not isinstance(federation, HasModule):
        return [("model", 0)]
    named = federation.unflatten(torch.arange(federation.dim))
    return [(name, int(part.reshape(-1)[0])) for name, part in named.items() if part.numel()]


@undisturbed
def decompose(
    meter: Meter, model: torch.Tensor, direction: npt.NDArray[np.float64] | None = None, tolerance: float | None = None
) -> Decomposition:
    """Divide zeta_rms^2 and L_h^2 at a model among workers and blocks of parameters.

    Args:
        meter: the meter that computes passes over the workers.
        model: the flat model.
        direction: the direction in which L_h is attained, ``directions["L_h"]`` of a curvature reading. By default, it
            is computed, which takes most of the time.
        tolerance: the tolerance of that computation, as for :func:`fedgauge.measurement.curvature.curvature`.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3, hessian_spread=0.5)
    >>> with Meter(federation) as meter:
    ...     parts = decompose(meter, federation.start(0))["L_h"]
    >>> abs(parts.total**0.5 - federation.constants()["L_h"].value) < 1e-9
    True
    """
    method = "given"
    if direction is None:
        direction, method = _worst(meter, model, tolerance), "Lanczos"
    if direction.shape != (len(model),) or not np.isfinite(direction).all() or not direction.any():
        raise InputError(
            f"direction must be {len(model)} finite numbers, not all 0; use directions['L_h'] of a curvature reading."
        )
    names, starts = zip(*blocks(meter.federation), strict=True)
    _, gradient = meter.evaluate(model)
    zeta = _parts(meter, "zeta_rms", names, meter.ask("gradient passes", 1, _gradient_parts, model, gradient, starts))
    along = torch.from_numpy(direction / np.linalg.norm(direction)).to(model)
    centre = meter.hessian(model, along)
    parts = meter.ask("Hessian passes", 1, _hessian_parts, model, along, centre, starts)
    return Decomposition((zeta, _parts(meter, "L_h", names, parts)), method)


def _worst(meter: Meter, model: torch.Tensor, tolerance: float | None) -> Floats:
    """The direction in which L_h is attained."""
    if tolerance is None:
        tolerance = 1e-9 if model.dtype == torch.float64 else 1e-3

    def product(vector: Floats) -> Floats:
        answer: Floats = meter.squared_deviation(model, torch.from_numpy(vector).to(model)).cpu().numpy()
        return answer

    # The random numbers have the same address as in curvature, so that both find the same direction.
    generator = Streams(meter.seed, Purpose.MEASURE).at(round=2)
    return largest(product, len(model), tolerance, generator, positive=True).vector


def _parts(meter: Meter, name: str, names: Sequence[str], answers: Sequence[tuple[Any, Floats]]) -> Parts:
    squares = np.empty((meter.federation.num_workers, len(names)))
    for workers, block_squares in answers:
        squares[workers] = block_squares
    return Parts(name, tuple(names), meter.shares, squares)


def _gradient_parts(
    passes: Passes, lane: Lane, model: torch.Tensor, centre: torch.Tensor, starts: Sequence[int]
) -> tuple[Indices, Floats]:
    """Squared distance of each worker's gradient from ``centre``, one number per block of parameters."""
    squares = []
    for (workers, _, _), _ in lane.chunks(passes.chunk):
        rows = passes.federation.gradients(model.expand(len(workers), -1), workers)
        squares.append(_by_block(rows.double() - centre, starts))
    return lane.cohort.workers, np.concatenate(squares)


def _hessian_parts(
    passes: Passes, lane: Lane, model: torch.Tensor, vector: torch.Tensor, centre: torch.Tensor, starts: Sequence[int]
) -> tuple[Indices, Floats]:
    """Squared distance of each worker's Hessian-vector product from ``centre``, one number per block."""
    squares = []
    for (workers, _, _), _ in lane.chunks(passes.chunk):
        size = len(workers)
        rows = passes.curved.hessian_products(model.expand(size, -1), vector.expand(size, -1), workers)
        squares.append(_by_block(rows.double() - centre, starts))
    return lane.cohort.workers, np.concatenate(squares)


def _by_block(rows: torch.Tensor, starts: Sequence[int]) -> Floats:
    """Sums of squares over blocks of consecutive columns, each from its own start to the next."""
    ends = [*starts[1:], rows.shape[1]]
    parts = [rows[:, first:last].square().sum(dim=1) for first, last in zip(starts, ends, strict=True)]
    squares: Floats = torch.stack(parts, dim=1).cpu().numpy()
    return squares
