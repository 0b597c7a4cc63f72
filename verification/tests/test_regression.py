"""The intervals of linear regression's constants hold the truth, as 60 digits give it."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

from fedgauge import SupervisedFederation
from fedgauge.federation.kernels.base import squared_error
from fedgauge_verification import certify
from fedgauge_verification.certification import gap_at

mpmath.mp.dps = 60

SHARDS = [range(7), range(7, 12), range(12, 20)]


def federation(l2: float, scale: float, seed: int, zero: bool = False, same: bool = False) -> SupervisedFederation:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, scale, 1.0]).double()
    if zero:
        x[:, 2] = 0.0
    y = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    shards: Any = SHARDS
    if same:
        x[10:], shards = x[:10], [range(10), range(10, 20)]
    torch.manual_seed(seed)
    return SupervisedFederation(nn.Linear(3, 2).double(), squared_error, x, y, shards, l2=l2)


def mean(rows: list[Any]) -> Any:
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total / len(rows)


def truth(made: SupervisedFederation, start: torch.Tensor, known: list[int]) -> dict[str, Any]:
    """The constants from the same floats in 60 digits; coordinates that are always 0 are left out of f*, F and d0."""
    grams, moments, powers = [], [], []
    for worker in range(made.num_workers):
        x, y = made.shard(worker)
        inputs = [mpmath.matrix([*row.tolist(), 1.0]) for row in x]
        targets = [mpmath.matrix(row.tolist()) for row in y]
        grams.append(mean([v * v.T for v in inputs]))
        moments.append(mean([t * v.T for t, v in zip(targets, inputs, strict=True)]))
        powers.append(mean([(t.T * t)[0] for t in targets]))
    G, Y, l2 = mean(grams), mean(moments), mpmath.mpf(made.l2)
    off = [gram - G for gram in grams]

    def spectrum(matrix: Any) -> list[Any]:
        return sorted(mpmath.eigsy(matrix, eigvals_only=True))

    apart = [max(map(abs, spectrum(matrix))) for matrix in off]
    found = {
        "L_tilde": max(spectrum(gram)[-1] for gram in grams) + l2,
        "L_g": spectrum(G)[-1] + l2,
        "L_h": mpmath.sqrt(max(spectrum(mean([matrix * matrix for matrix in off]))[-1], mpmath.mpf(0))),
        "L_h_paper": max(apart),
        "L_h_rms": mpmath.sqrt(mean([norm**2 for norm in apart])),
    }
    size = len(known)
    A = mpmath.matrix(size, size)
    for i, row in enumerate(known):
        for j, column in enumerate(known):
            A[i, j] = G[row, column] + (l2 if row == column else 0)
    first = start.double().tolist()
    weights = [[*first[3 * output : 3 * output + 3], first[6 + output]] for output in range(2)]
    f_star, gap, away2 = mean(powers) / 2, mpmath.mpf(0), mpmath.mpf(0)
    for output in range(2):
        b = mpmath.matrix([Y[output, column] for column in known])
        best = mpmath.lu_solve(A, b)
        D = mpmath.matrix([weights[output][column] for column in known]) - best
        f_star -= (b.T * best)[0] / 2
        gap += (D.T * A * D)[0] / 2
        away2 += (D.T * D)[0]
    return {**found, "f_star": f_star, "F": gap, "d0": away2}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("l2", "scale"), [(0.0, 1.0), (0.1, 1.0), (0.0, 1e-3), (1e-3, 100.0)])
def test_every_interval_holds_the_truth(l2: float, scale: float, seed: int) -> None:
    made = federation(l2, scale, seed)
    found = certify(made).constants
    for symbol, value in truth(made, made.start(0), [0, 1, 2, 3]).items():
        estimate = found[symbol]
        assert mpmath.mpf(estimate.low) <= value <= mpmath.mpf(estimate.high), symbol
        assert estimate.kind == "exact"
        assert estimate.value == (estimate.low if symbol == "f_star" else estimate.high)


def test_an_input_that_is_always_0_leaves_the_gap_proved() -> None:
    made = federation(0.0, 1.0, 0, zero=True)
    expected = truth(made, made.start(0), [0, 1, 3])
    gap = certify(made).constants["F"]
    assert gap.kind == "exact"
    assert mpmath.mpf(gap.low) <= expected["F"] <= mpmath.mpf(gap.value)


def test_where_f_is_flat_the_gap_is_bounded_by_f_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 3, generator=generator).double(), torch.randn(2, 2, generator=generator).double()
    made = SupervisedFederation(nn.Linear(3, 2).double(), squared_error, x, y, [[0], [1]])
    found = certify(made).constants
    loss = float(made.losses(made.start(0).expand(2, -1), np.arange(2)).mean())
    assert found["F"].kind == "upper"
    assert found["F"].value == pytest.approx(loss, rel=1e-9)
    assert found["F"].value >= loss
    assert not found["d0"].certain


def test_only_workers_with_the_same_inputs_share_a_hessian() -> None:
    found = certify(federation(0.0, 1.0, 0, same=True)).constants
    assert (found["L_h"].value, found["L_h"].kind, found["zeta"].kind) == (0.0, "exact", "exact")
    assert certify(federation(0.0, 1.0, 0)).constants["L_h"].value > 0


def test_the_gap_at_another_first_model_holds_the_truth() -> None:
    made = federation(0.1, 1.0, 0)
    other = 5 * made.start(0) + 1
    gap = gap_at(made, other, certify(made).constants["f_star"])
    assert mpmath.mpf(gap.low) <= truth(made, other, [0, 1, 2, 3])["F"] <= mpmath.mpf(gap.value)
