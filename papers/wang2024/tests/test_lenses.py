"""Lenses: closed forms on quadratics, naive loops on a small network, identities and laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import federation as network
from tests.federation.networks import mlp
from tests.measurement.test_curvature import hessians
from tests.strategies import federations

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.symbols import SYMBOLS
from fedgauge.cli import main
from fedgauge.data.schemes import iid
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.passes import Meter, OutOfBudgetError
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.show.views.measurements import view_of_measurement
from fedgauge.simulation.options import Compute
from fedgauge_wang2024.lens_passes import ROUND
from fedgauge_wang2024.lens_reading import LENSES, lenses

pytestmark = pytest.mark.usefixtures("one_thread")
GAMMA, STEPS = 0.1, 4


def looked(of: Federation, model: torch.Tensor | None = None, weights: Any = None, **options: Any) -> Reading:
    options = {"gamma": GAMMA, "local_steps": STEPS, "exact": True, **options}
    with Meter(of, weights=weights, seed=5, compute=Compute(processes=1)) as meter:
        return lenses(meter, of.start(0) if model is None else model, **options)


def values(reading: Reading) -> dict[str, float]:
    return {estimate.symbol: estimate.value for estimate in reading.estimates}


def naive(A: Any, b: Any, x: Any, shares: Any) -> dict[str, float]:
    """Every lens on F_i = x'A_i x/2 + b_i'x, one worker and one step at a time."""
    N = len(A)
    H = sum(shares[i] * A[i] for i in range(N))
    slopes = [A[i] @ x + b[i] for i in range(N)]
    slope = sum(shares[i] * slopes[i] for i in range(N))
    local = []
    for i in range(N):
        y = x
        for _ in range(STEPS):
            y = y - GAMMA * (A[i] @ y + b[i])
        local.append(y)
    mean = sum(shares[i] * local[i] for i in range(N))
    joint = x
    for _ in range(STEPS):
        joint = joint - GAMMA * (H @ joint + sum(shares[i] * b[i] for i in range(N)))
    errors = [A[i] @ (local[i] - mean) for i in range(N)]
    error = np.linalg.norm(sum(shares[i] * errors[i] for i in range(N)))
    spread = sum(shares[i] * np.sum((local[i] - mean) ** 2) for i in range(N))
    return {
        "zeta": max(np.linalg.norm(slopes[i] - slope) for i in range(N)),
        "zeta_rms": sum(shares[i] * np.sum((slopes[i] - slope) ** 2) for i in range(N)) ** 0.5,
        "B": (sum(shares[i] * np.sum(slopes[i] ** 2) for i in range(N)) / np.sum(slope**2)) ** 0.5,
        "diversity": sum(np.sum((shares[i] * slopes[i]) ** 2) for i in range(N)) / np.sum(slope**2),
        "rho": np.linalg.norm(mean - x) / (GAMMA * STEPS),
        "drift": np.linalg.norm(mean - joint) / (GAMMA * STEPS),
        "alpha_h": N * error**2 / sum(shares[i] * np.sum(errors[i] ** 2) for i in range(N)),
        "L_h": error / spread**0.5,
        "L_tilde": max(np.linalg.norm(errors[i]) / np.linalg.norm(local[i] - mean) for i in range(N)),
        "delta": max(np.abs(np.linalg.eigvalsh(A[i] - H)).max() for i in range(N)),
    }


@pytest.mark.parametrize("weights", [None, (0.5, 0.2, 0.2, 0.1)])
@pytest.mark.parametrize("shape", ["convex", "indefinite"])
def test_on_quadratics_they_are_their_definitions(shape: Any, weights: Any) -> None:
    of = random_quadratics(4, 5, shape=shape, hessian_spread=0.7, linear_spread=2.0, seed=3)
    found = values(looked(of, weights=weights))
    shares = np.full(4, 0.25) if weights is None else np.array(weights)
    wanted = naive(of.hessians, of.linear, of.first_model, shares)
    assert set(found) == set(LENSES) - {"label_js", "label_hellinger", "label_emd"} == set(wanted)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-9), name


def test_on_a_network_gradients_and_hessians_agree_with_autograd() -> None:
    of = network(mlp(width=4, dtype=torch.float64), dtype=torch.float64, workers=4)
    model = of.start(0)
    found = values(looked(of, model))
    slopes = np.stack([of.gradients(model[None], np.array([i]))[0].numpy() for i in range(4)])
    slope = slopes.mean(axis=0)
    assert found["zeta_rms"] ** 2 == pytest.approx(((slopes - slope) ** 2).sum(axis=1).mean(), rel=1e-9)
    assert found["B"] ** 2 == pytest.approx((slopes**2).sum(axis=1).mean() / (slope**2).sum(), rel=1e-9)
    dense = hessians(of, model)
    assert found["delta"] == pytest.approx(np.abs(np.linalg.eigvalsh(dense - dense.mean(axis=0))).max(), rel=1e-6)


def test_mini_batch_steps_are_those_of_the_seed() -> None:
    of = network(workers=3)
    model, workers = of.start(0), np.arange(3)
    found = values(looked(of, model, exact=False))
    draws = of.draws(Streams(5, Purpose.MEASURE), ROUND, workers, np.zeros(3, np.int64), STEPS)
    local, joint = model.expand(3, -1), model
    for draw in draws:
        local = local - GAMMA * of.stochastic_gradients(local, workers, draw)
        joint = joint - GAMMA * of.stochastic_gradients(joint.expand(3, -1), workers, draw).mean(dim=0)
    mean = local.mean(dim=0)
    assert found["rho"] == pytest.approx(float((mean - model).norm()) / (GAMMA * STEPS), rel=1e-4)  # float32
    assert found["drift"] == pytest.approx(float((mean - joint).norm()) / (GAMMA * STEPS), rel=1e-2)  # a difference
    errors = of.gradients(local, workers) - of.gradients(mean.expand(3, -1), workers)
    alpha = float(errors.sum(dim=0).square().sum() / errors.square().sum())
    assert found["alpha_h"] == pytest.approx(alpha, rel=1e-2)
    kinds = {estimate.symbol: estimate.kind for estimate in looked(of, model, exact=False).estimates}
    assert kinds["rho"] == kinds["alpha_h"] == "sample"


@settings(max_examples=30)
@given(federations(num_workers=3, hessian_spread=1.0, linear_spread=1.0))
def test_identities(of: QuadraticFederation) -> None:
    reading = looked(of)
    found = values(reading)
    if "B" in found:
        assert found["B"] >= 1 - 1e-12
        assert found["B"] ** 2 == pytest.approx(3 * found["diversity"], rel=1e-9)
        # The mean square is the square of the mean and the variance.
        assert found["B"] ** 2 == pytest.approx(1 + found["zeta_rms"] ** 2 / reading.details["grad2"], rel=1e-9)
    assert found["zeta_rms"] <= found["zeta"] * (1 + 1e-12)
    assert -1e-12 <= found["alpha_h"] <= 3 + 1e-9
    with Meter(of, compute=Compute(processes=1)) as meter:
        tight = curvature(meter, of.start(0)).constants
    assert found["L_h"] <= tight["L_h"].value * (1 + 1e-9) <= found["delta"] * (1 + 2e-9)
    assert found["L_tilde"] <= tight["L_tilde"].value * (1 + 1e-9)
    assert found["delta"] == pytest.approx(of.constants()["L_h_paper"].value, rel=1e-8)


def test_at_the_minimiser_rho_is_what_local_steps_add() -> None:
    of = random_quadratics(4, 3, hessian_spread=0.5, linear_spread=2.0)
    found = values(looked(of, torch.from_numpy(of.minimiser()[0])))
    assert found["rho"] == pytest.approx(found["drift"], rel=1e-6)
    assert found["rho"] > 1e-3


def test_equal_hessians_show_no_drift_however_far_the_gradients_are_apart() -> None:
    of = random_quadratics(4, 3, hessian_spread=0.0, linear_spread=100.0)
    found = values(looked(of))
    assert found["zeta"] > 10
    # Rounding of numbers of about zeta.
    assert max(found["drift"], found["alpha_h"], found["L_h"], found["delta"]) < 1e-10


@settings(max_examples=15)
@given(of=federations(num_workers=3, dim=4, hessian_spread=1.0, linear_spread=1.0), order=st.permutations(range(3)))
def test_laws(of: QuadraticFederation, order: list[int]) -> None:
    A, b, x = of.hessians, of.linear, of.first_model
    plain = values(looked(of))

    def changed(A: Any, b: Any, x: Any = x, **options: Any) -> dict[str, float]:
        return values(looked(QuadraticFederation(A, b), torch.from_numpy(x), **options))

    def same(found: dict[str, float], factors: dict[str, float] | None = None) -> None:
        for name, value in plain.items():
            times = (factors or {}).get(name, 1.0)
            # Differences of the gradients lose digits where they nearly agree.
            assert found[name] == pytest.approx(times * value, rel=1e-6, abs=1e-9), name

    same(changed(A[order], b[order]))
    # N is in two definitions: as many workers again, and errors add up twice as far and the sum is twice as long.
    same(changed(np.repeat(A, 2, axis=0), np.repeat(b, 2, axis=0)), {"alpha_h": 2.0, "diversity": 0.5})
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    same(changed(turn @ A @ turn.T, b @ turn.T, turn @ x))
    # Twice the loss at half the rate takes the same steps.
    twice = dict.fromkeys(("zeta", "zeta_rms", "rho", "drift", "L_h", "L_tilde", "delta"), 2.0)
    same(changed(2 * A, 2 * b, gamma=GAMMA / 2), twice)


def test_processes_and_chunks_change_nothing() -> None:
    of = network(workers=5)
    plain = values(looked(of, exact=False))
    with Meter(of, seed=5, compute=Compute(processes=2)) as meter:
        assert values(lenses(meter, of.start(0), gamma=GAMMA, local_steps=STEPS)) == plain
    with Meter(of, seed=5, compute=Compute(processes=1, chunk=2)) as meter:
        other = values(lenses(meter, of.start(0), gamma=GAMMA, local_steps=STEPS))
    assert other == pytest.approx(plain, rel=1e-2)


def test_passes_are_shared_and_counted() -> None:
    of = random_quadratics(4, 3, hessian_spread=0.5)
    with Meter(of, compute=Compute(processes=1)) as meter:
        reading = lenses(meter, of.start(0), gamma=GAMMA, local_steps=STEPS, exact=True, only=("zeta", "B", "rho"))
        # One for f, one for the workers; the steps twice, and two at their ends.
        assert meter.cost == {"gradient passes": 2 + 2 * STEPS + 2}
    assert [dict(estimate.cost) for estimate in reading.estimates] == [
        {"gradient passes": 2.0},
        {},
        {"gradient passes": 2.0 * STEPS + 2},
    ]


def test_labels_are_read_where_they_are_given() -> None:
    of = network(workers=4)
    labels = of.targets.numpy()
    partition = iid(labels, 4)
    with Meter(of, compute=Compute(processes=1)) as meter:
        reading = lenses(meter, of.start(0), partition=partition, labels=labels, only=["label_js", "label_emd"])
        assert not meter.cost
    assert reading.details["labels"]["label_js"]["mean"] == reading.constants["label_js"].value > 0


def test_what_the_budget_allows_is_kept() -> None:
    of = random_quadratics(4, 3, hessian_spread=0.5)

    def told(what: str, done: float) -> None:
        if what == "Hessian passes":
            raise OutOfBudgetError

    with Meter(of, progress=told, compute=Compute(processes=1)) as meter:
        reading = lenses(meter, of.start(0), gamma=GAMMA, local_steps=STEPS)
    assert not reading.complete
    assert "Not measured: delta; the budget is used up." in reading.notes
    assert set(values(reading)) == set(LENSES) - {"delta", "label_js", "label_hellinger", "label_emd"}


def test_what_cannot_be_shown_is_said() -> None:
    of = QuadraticFederation(np.ones((2, 1, 1)), np.zeros((2, 1)), start=np.zeros(1))
    reading = looked(of)
    assert {"B", "diversity", "alpha_h", "L_h", "L_tilde"} & set(values(reading)) == set()
    assert sum("gradient is zero" in note for note in reading.notes) == 2
    assert sum("local models agree" in note for note in reading.notes) == 3
    assert sum("partition and labels" in note for note in reading.notes) == 3


def test_the_command_takes_them_and_shows_them_in_a_table_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random_quadratics(4, 3, hessian_spread=0.5, linear_spread=2.0).write(tmp_path / "fed.json")
    line = ["measure", str(tmp_path / "fed.json"), "--gamma", "0.1", "--local-steps", "4", "--most", "2"]
    assert main([*line, "--readings", "divergence,lenses", "--out", str(tmp_path / "measured")]) == 0
    capsys.readouterr()
    measured = Measurement.from_json(json.loads((tmp_path / "measured" / "measure.json").read_text()))
    found = measured.reading("lenses")
    assert found is not None
    assert {"B", "rho", "alpha_h", "delta"} <= set(values(found))
    tables = {table.title: table for table in view_of_measurement(measured).tables}
    assert tables["By reading"].heads == ("symbol", "divergence")
    assert len(tables["Other lenses"].rows) == len(found.estimates)


def test_bad_input_is_one_sentence() -> None:
    of = random_quadratics(2, 2)
    for options, sentence in (
        ({"only": ["rhoo"]}, "no lens 'rhoo'; did you mean rho?"),
        ({"only": ["label_js"]}, "The lens label_js needs partition and labels"),
        ({"gamma": None}, "together"),
        ({"gamma": -1.0}, "gamma must be"),
    ):
        with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
            looked(of, **options)


def test_every_lens_is_a_symbol_with_a_source() -> None:
    for name, lens in LENSES.items():
        assert name in SYMBOLS
        assert lens.says.endswith(".")
        assert lens.source
