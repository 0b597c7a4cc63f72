"""The certificate: closed forms, an exact check of its check, the other versions, and federations on the other side."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgauge.algorithms import fedavg
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import evaluate
from fedgauge.theory.expectation import expect
from fedgauge_verification.sdp import check_dual, make_program, sdp_bound
from fedgauge_verification.worst_case import worst_case, worst_round

pytest.importorskip("cvxpy")

VALUES: dict[str, Any] = {"F": 1, "R": 100, "N": 8, "sigma2": 1, "zeta2": 1, "L_g": 1, "L_h": 0.5}


@pytest.mark.parametrize("gamma", [0.1, 1.0, 1.8])
def test_one_step_has_the_closed_form(gamma: float) -> None:
    found = sdp_bound(I=1, gamma=gamma, **VALUES)
    star = float(evaluate("nonconvex", I=1, gamma=gamma, **VALUES).total)
    assert found.worth == "certified"
    # The slack matrices are kept away from 0 by 1e-7 times a trace, which is what the bound loses.
    assert star * (1 - 1e-7) <= found.bound <= star * (1 + 1e-4)


@pytest.mark.parametrize(("I", "gamma"), [(2, 0.05), (3, 0.1)])
def test_it_lies_between_a_federation_and_the_theorem(I: int, gamma: float) -> None:  # noqa: E741
    found = worst_case(I=I, gamma=gamma, **VALUES)
    assert found.sdp.worth == "certified"
    assert found.versions["star"] is not None
    assert found.found.grad2 <= found.sdp.bound <= found.versions["star"]
    assert found.gap < 1.2
    assert found.verdict.startswith("Certified: the average of E|grad f(xbar^r)|^2 over 100 rounds is at most ")
    assert worst_case({"L_h": "lower"}, I=1, gamma=gamma, **VALUES).verdict.startswith("Plug-in, as L_h may be")


def test_the_federation_is_what_it_says() -> None:
    gamma, I = 0.08, 3  # noqa: E741
    found = worst_round(I=I, gamma=gamma, below=1.0, **VALUES)
    made = QuadraticFederation(np.array(found.curvatures)[:, None, None], np.array(found.pulls)[:, None], sigma2=1.0)
    run = expect(made, fedavg(gamma), local_steps=I, rounds=1)
    assert run.grad2[0] == pytest.approx(found.grad2)
    assert run.loss[0] - run.loss[1] <= VALUES["F"] / VALUES["R"] * (1 + 1e-9)
    known = made.constants()
    assert known["L_g"].value <= 1 + 1e-9
    assert known["L_h"].value <= 0.5 + 1e-9


def test_beyond_the_theorems_limits_and_where_there_is_nothing() -> None:
    values = {**VALUES, "sigma2": 0.0}
    beyond = sdp_bound(I=2, gamma=0.9, **values)
    assert beyond.worth == "certified"
    assert not evaluate("nonconvex", I=2, gamma=0.9, **values).admissible
    nothing = sdp_bound(I=1, gamma=2.5, **values)  # a parabola diverges
    assert nothing.worth != "certified"


def is_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """Symmetric elimination without rounding."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[k][j] for j in range(k, len(rows)))):
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / pivot if pivot else Fraction(0)
            for j in range(k, len(rows)):
                rows[i][j] -= factor * rows[k][j]
    return True


def test_the_check_agrees_with_exact_arithmetic() -> None:
    """The multipliers of a solved program prove its bound in rationals; a bound a little lower is not proved."""
    from fedgauge_verification import sdp

    program, sizes = make_program(2, 0.125, 1.0, 4, 0.5, 1.0, 1.0, 1.0)
    solved = sdp._solve(program, 1e-7)
    assert solved is not None
    primal, multipliers = solved
    bound, margin = check_dual(program, sizes, multipliers)
    assert margin > 0
    assert primal <= bound <= primal * (1 + 1e-3)
    exact = [Fraction(float(one)) for one in multipliers]
    for matrices, target in ((program.mean, np.outer(program.size, program.size)), (program.apart, np.zeros((5, 5)))):
        n = matrices.shape[1]
        slack = [
            [
                sum((m * Fraction(float(a)) for m, a in zip(exact, matrices[:, i, j], strict=True)), Fraction(0))
                - Fraction(float(target[i, j]))
                for j in range(n)
            ]
            for i in range(n)
        ]
        assert is_semidefinite(slack)
    for weaker in (multipliers * 0.999, -multipliers, multipliers * math.nan):
        assert check_dual(program, sizes, weaker)[1] < 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"I": 17}, "I must be at most 16, not 17"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"zeta2": math.inf}, "zeta2 must be a finite number of at least 0 for the worst case of a round"),
    ],
)
def test_mistakes_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sdp_bound(**{"I": 1, "gamma": 0.1, **VALUES, **changes})


def test_it_is_about_equal_weights(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"N must be a whole number for the worst case of a round, not 2\.5"):
        worst_case(**{**VALUES, "I": 1, "gamma": 0.1, "N": 2.5})
    numbers = ["F=1", "R=9", "N=2.5", "sigma2=1", "zeta2=1", "L_g=1", "L_h=0.5", "I=1", "gamma=0.1"]
    assert main(["theory", "worst-case", *numbers]) == 2
    assert "equal weights" in capsys.readouterr().err


def test_the_command_says_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [f"{name}={value}" for name, value in {**VALUES, "I": 1, "gamma": 0.1}.items()]
    assert main(["theory", "worst-case", *numbers, "--plot", str(tmp_path / "worst.svg")]) == 0
    assert capsys.readouterr().out.startswith("Certified: the average of")
    assert (tmp_path / "worst.svg").exists()
