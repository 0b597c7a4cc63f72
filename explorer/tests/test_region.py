"""Where local SGD beats mini-batch SGD: the closed forms, limits worked by hand, laws, and one sentence a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge import QuadraticFederation, expect, fedavg, minibatch
from fedgauge.cli import main
from fedgauge_explorer.quadratic_family import average_grad2, family
from fedgauge_explorer.region import Axis, Region, compute, make_axis

SMALL: dict[str, Any] = {"dim": 3, "conditioning": 10.0}
Capture = pytest.CaptureFixture[str]


def at(x: str, value: float, y: str, other: float, **fixed: Any) -> Region:
    """A map whose first point is the one asked for."""
    return compute(Axis(x, (value, 2 * value + 1)), Axis(y, (other, 2 * other + 1)), **SMALL, **fixed)


@settings(max_examples=25)
@given(
    I=st.integers(1, 9),
    R=st.integers(1, 40),
    share=st.floats(0, 1),
    L_g=st.floats(0.1, 10),
    zeta=st.floats(0, 5),
    sigma=st.floats(0, 5),
    rate=st.floats(1e-6, 1),
)
def test_closed_forms_agree_with_the_exact_expectations(
    I: int,  # noqa: E741
    R: int,
    share: float,
    L_g: float,
    zeta: float,
    sigma: float,
    rate: float,
) -> None:
    values: dict[str, Any] = {"F": 1.7, "N": 4, "L_g": L_g, "L_h": share * L_g, "zeta": zeta, "sigma": sigma, **SMALL}
    federation, gamma = family(**values), rate / L_g
    local = expect(federation, fedavg(gamma), local_steps=I, rounds=R, iterations=True).grad2[:-1]
    other = expect(federation, minibatch(gamma), local_steps=I, rounds=R).grad2[:-1]
    assert average_grad2(gamma, I=I, R=R, **values) == pytest.approx(np.mean(local), rel=1e-9)
    assert average_grad2(gamma, I=I, R=R, minibatch=True, **values) == pytest.approx(np.mean(other), rel=1e-9)


@pytest.mark.parametrize("L_h", [0.0, 0.3, 2.0])
def test_the_family_has_the_constants_that_were_asked_for(L_h: float) -> None:
    federation = family(F=1.5, N=6, L_g=2.0, L_h=L_h, zeta=3.0, sigma=0.5, dim=4, conditioning=50)
    found = federation.constants()
    assert isinstance(federation, QuadraticFederation)
    for symbol, value in {"L_g": 2, "L_h": L_h, "L_h_paper": L_h, "L_tilde": 2 + L_h, "mu": 0.04, "sigma": 0.5}.items():
        assert found[symbol].value == pytest.approx(value)
    x_star, f_star = federation.minimiser()
    for point in (federation.first_model, x_star):
        assert federation.zeta(point).tolist() == [pytest.approx([3.0] * 6)]
    first = federation.first_model
    assert first @ federation.mean_hessian @ first / 2 - f_star == pytest.approx(1.5)


def test_without_noise_and_drift_local_sgd_gains_a_factor_of_its_steps() -> None:
    """With one curvature, gamma = 1/L_g is best for both and leaves the first gradient only."""
    region = compute(make_axis("I", (1, 32), 6), make_axis("zeta", (0, 9), 2), sigma=0, dim=2, conditioning=1)
    for contest in (region.exact, region.bound):
        assert contest.log_ratio == pytest.approx(np.tile(-np.log(region.x.values), (2, 1)), abs=1e-9)
        # The bound is F/(x (1 - x/2)), flat at its least, so that the search may stop a root of the rounding away.
        assert contest.local_gamma == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("L_h", [0.0, 0.2])
def test_with_one_step_the_methods_are_one(L_h: float) -> None:
    region = at("I", 1, "sigma", 0.3, L_h=L_h)
    for contest in (region.exact, region.bound):
        assert contest.log_ratio[:, 0] == pytest.approx([0, 0], abs=1e-12)
        assert (contest.winner[:, 0] == 0).all()


def test_much_noise_makes_a_tie_by_the_bounds_where_hessians_agree_and_a_loss_where_they_do_not() -> None:
    assert at("sigma", 1e4, "I", 8, L_h=0.0).bound.log_ratio[0, 0] == pytest.approx(0, abs=1e-4)
    assert at("sigma", 1e4, "I", 8, L_h=0.2).bound.winner[0, 0] == -1
    assert at("sigma", 0.0, "I", 8, L_h=0.0).bound.winner[0, 0] == 1


def test_bounds_approach_a_tie_with_the_noise() -> None:
    """They differ by 1 - x L_g/2 at rates x and x I; the best x falls as 1/sigma."""
    ratios = [float(at("sigma", sigma, "I", 4).bound.log_ratio[0, 0]) for sigma in (1.0, 10.0, 100.0, 1000.0)]
    assert all(ratio < 0 for ratio in ratios)
    assert ratios[2] / ratios[3] == pytest.approx(10, rel=0.02)
    assert ratios == sorted(ratios)


def test_exact_border_lies_where_it_was_worked_out() -> None:
    """R = I = 2, no noise, one curvature 1 and F = 1.

    Mini-batch SGD: (2 + 0)/2 at gamma = 1. Local SGD, with u = 1 - gamma and Z = zeta L_h: along the common direction
    2 (1 + u^2 + u^4 + u^6)/4; along the other the first round ends at gamma^2 Z and the next step shrinks it by u:
    gamma^4 Z^2 (1 + u^2)/4. So local SGD wins where Z^2 is below the largest quotient over gamma.
    """
    gamma = np.linspace(0.3, 1, 100_001)
    u = 1 - gamma
    quotient = (4 - 2 * (1 + u**2 + u**4 + u**6)) / (gamma**4 * (1 + u**2))
    border = quotient.max() ** 0.5
    for L_h in (0.1, 0.5):
        edge = border / L_h
        axis = Axis("zeta", (edge * 0.999, edge * 1.001))
        region = compute(axis, Axis("sigma", (0.0, 1e-12)), I=2, R=2, L_h=L_h, dim=2, conditioning=1)
        assert region.exact.log_ratio[0, 0] < 0 < region.exact.log_ratio[0, 1]


@pytest.mark.parametrize("pair", [("sigma", "I"), ("zeta", "L_h"), ("R", "zeta"), ("L_h", "I")], ids="-".join)
def test_the_bounds_hold_on_the_family(pair: tuple[str, str]) -> None:
    fixed: dict[str, Any] = {} if "L_h" in pair else {"L_h": 0.1}
    region = compute(make_axis(pair[0], points=4), make_axis(pair[1], points=4), **fixed)
    assert (region.bound.local >= region.exact.local).all()
    assert (region.bound.minibatch >= region.exact.minibatch).all()


def test_units_do_not_matter() -> None:
    """Scaling every F_i by c scales F, sigma, zeta, L_g and L_h; who wins stays."""
    one = compute(make_axis("zeta", (0.1, 10), 4), make_axis("I", (1, 9), 3), L_h=0.2, sigma=0.3, **SMALL)
    other = compute(make_axis("zeta", (0.7, 70), 4), make_axis("I", (1, 9), 3), L_h=1.4, sigma=2.1, L_g=7, F=7, **SMALL)
    for name in ("bound", "exact"):
        assert getattr(one, name).log_ratio == pytest.approx(getattr(other, name).log_ratio, abs=1e-6)


def test_drift_hurts_local_sgd_alone() -> None:
    region = compute(make_axis("zeta", (0.01, 100), 6), make_axis("L_h", (0.01, 1), 4), **SMALL)
    for contest in (region.bound, region.exact):
        assert (np.diff(contest.log_ratio, axis=1) >= -1e-6).all()
        assert np.ptp(contest.minibatch) <= 1e-9


def test_the_corollary_is_a_ratio_of_noise() -> None:
    region = compute(make_axis("sigma", (0.1, 1), 2), make_axis("I", (1, 4), 2), R=50, **SMALL)
    assert region.corollary is not None
    assert region.corollary[1, 0] == pytest.approx(0.1 / (8 / (50 * 4)) ** 0.5)
    assert at("sigma", 0.1, "I", 4, L_h=0.1).corollary is None


def test_axes_span_their_range_on_a_log_scale_unless_they_start_at_zero() -> None:
    assert make_axis("sigma", (0.1, 10), 3).values == pytest.approx((0.1, 1, 10))
    assert make_axis("sigma", (0, 10), 3).values == (0, 5, 10)
    assert make_axis("I", (1, 4), 24).values == (1, 2, 3, 4)
    assert not make_axis("L_h", (0, 1)).log


def test_json_both_ways() -> None:
    region = at("sigma", 0.5, "I", 4)
    back = Region.from_json(json.loads(json.dumps(region.to_json())))
    assert (back.x, back.y, back.fixed) == (region.x, region.y, region.fixed)
    assert np.array_equal(back.exact.log_ratio, region.exact.log_ratio)
    assert np.array_equal(back.bound.winner, region.bound.winner)


def test_progress_is_told_and_pieces_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = make_axis("sigma", points=3), make_axis("R", (1, 4), 2)
    whole = compute(*axes, I=2, **SMALL)
    monkeypatch.setattr("fedgauge_explorer.region._CHUNK", 4)
    calls: list[tuple[str, int, int | None]] = []
    parts = compute(*axes, progress=lambda *call: calls.append(call), I=2, **SMALL)
    assert calls == [("region", 0, 6), ("region", 4, 6), ("region", 6, 6)]
    assert parts.exact.log_ratio == pytest.approx(whole.exact.log_ratio)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize(
    "fixed",
    [{"x": "sigma", "y": "I"}, {"x": "zeta", "y": "L_h"}, {"x": "sigma", "y": "I", "L_h": 0.9, "zeta": 90}],
    ids=["equal", "unequal", "borders off the map"],
)
def test_a_picture_is_drawn_whatever_the_borders(fixed: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    names = {name: fixed[name] for name in ("x", "y")}
    rest = {name: value for name, value in fixed.items() if name not in names}
    ends = (1, 4) if names["y"] == "I" else None
    region = compute(make_axis(names["x"], points=4), make_axis(names["y"], ends, 4), **SMALL, **rest)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        region.plot(tmp_path / f"map{suffix}")
    assert (tmp_path / f"map{suffix}").stat().st_size > 1000


def test_command(capsys: Capture, tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    command = ["theory", "region", "--x", "zeta", "--y", "L_h", "--x-range", "0.1", "10", "--points", "3", "I=4", "R=9"]
    assert main([*command, "--plot", str(picture), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert picture.exists()
    assert found["x"] == {"name": "zeta", "values": [0.1, 1.0, 10.0]}
    assert found["fixed"]["R"] == 9
    assert np.shape(found["exact"]["log_ratio"]) == np.shape(found["bound"]["winner"]) == (3, 3)
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "L_h over zeta" in said
    assert "Exactly, local SGD wins" in said.replace("\n", " ")


MISTAKES: list[tuple[list[str], str]] = [
    (["--x", "sigma", "--y", "sigma"], "The two axes must differ, not both be sigma; choose two of sigma, I, R, L_h"),
    (["--x", "sigm"], "An axis cannot be sigm; did you mean sigma?"),
    (["--x", "N"], "An axis cannot be N; choose one of sigma, I, R, L_h, zeta."),
    (["--x-range", "2", "1"], "The range of sigma must go from a smaller to a larger value, not from 2.0 to 1.0."),
    (["--x-range", "1", "1"], "The range of sigma must go from a smaller to a larger value"),
    (["--x-range", "-1", "1"], "The range of sigma must consist of finite numbers of at least 0, not -1.0."),
    (["--x-range", "0", "nan"], "must consist of finite numbers of at least 0, not nan."),
    (["--y-range", "0", "8"], "The range of I must consist of whole numbers of at least 1, not 0.0."),
    (["--y-range", "1", "8.5"], "whole numbers of at least 1, not 8.5."),
    (["--y-range", "1", "1e9"], "I must be at most 10,000 here, not 1e+09."),
    (["--points", "1"], "points must be a whole number of at least 2, not 1."),
    (["--dim", "1"], "dim must be a whole number of at least 2, not 1."),
    (["--conditioning", "0.5"], "conditioning must be at least 1, not 0.5."),
    (["sigma=1"], "sigma is an axis; leave sigma=… out or choose another axis."),
    (["zetta=1"], "The region has no symbol zetta; did you mean zeta?"),
    (["L_h=2"], "L_h must be at most L_g = 1, not 2, so that each F_i is convex."),
    (["--x", "L_h", "--x-range", "0", "3"], "L_h must be at most L_g = 1, not 3"),
    (["N=7"], "N must be even, not 7"),
    (["R=0"], "R must be a whole number of at least 1, not 0."),
    (["zeta=-1"], "zeta must be a finite number of at least 0, not -1."),
    (["F=0"], "F must be a finite number above 0, not 0."),
    (["L_g=0"], "L_g must be a finite number above 0, not 0."),
    (["R"], "An argument must be NAME=VALUE"),
    (["--plot", "map.txt"], "plot must be a file that ends in .png, .pdf or .svg"),
]


@pytest.mark.parametrize(("command", "sentence"), MISTAKES, ids=[" ".join(case[0]) for case in MISTAKES])
def test_mistake(command: list[str], sentence: str, capsys: Capture) -> None:
    assert main(["theory", "region", *command]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_the_closed_form_is_the_papers_and_speaks_only_where_noise_is_small() -> None:
    """R = 32, I = 2, L_h = zeta = 1/2, kappa <= 1: (32/4)^(1/3) = 2 over 1/(1 + 1/4 * 2 * 2 * 1/4) = 4/5."""
    region = compute(Axis("sigma", (0.0, 100.0)), Axis("I", (2.0, 4.0)), R=32, L_h=0.5, zeta=0.5, **SMALL)
    assert region.closed[0] == pytest.approx([2.5, 2.5])
    assert region.closed_noise[0] == pytest.approx([0, 100**2 / (8 / (64 ** (-2 / 3) * 64))])
    assert region.claimed[0].tolist() == [-1, 0]
    # (32/16)^(1/3) over 1/(1 + 1/4 * 4 * 4 * 1/4)
    assert region.closed[1] == pytest.approx([2 * 2 ** (1 / 3)] * 2)
    assert "is stated for 50% of the map" in region.summary
    loud = compute(Axis("sigma", (50.0, 100.0)), Axis("I", (2.0, 4.0)), R=32, L_h=0.5, zeta=0.5, **SMALL)
    assert loud.summary.endswith("is stated for less noise than the map has.")
    few = compute(Axis("sigma", (0.0, 1e-3)), Axis("I", (32.0, 64.0)), R=4, L_h=0.001, zeta=0.5, **SMALL)
    assert (few.claimed == 1).all()


def test_maps_and_the_page_do_not_wait_for_torch() -> None:
    code = (
        "import sys; import fedgauge_explorer.page; from fedgauge_explorer import region as r;"
        "r.compute(r.make_axis('sigma', points=2), r.make_axis('I', points=2));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
