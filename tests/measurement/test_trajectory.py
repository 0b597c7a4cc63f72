"""What is read off FedAvg's own steps: never above the constants, equal to a naive loop, with intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.federation.networks import federation as network
from tests.strategies import federations

from fedgauge import fedavg, simulate
from fedgauge.base.errors import InputError
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.measurement.intervals import CONFIDENCE, of_runs
from fedgauge.measurement.trajectory import exceeded, near_convergence, readings, trajectory
from fedgauge.simulation.options import Compute, Recording
from fedgauge.values import Round

pytestmark = pytest.mark.usefixtures("one_thread")


@settings(max_examples=60)
@given(of=federations(), steps=st.integers(1, 8), eta=st.sampled_from([0.5, 1.0, 2.0]), seed=st.integers(0, 99))
def test_ratios_never_exceed_the_constants(of: QuadraticFederation, steps: int, eta: float, seed: int) -> None:
    exact = of.constants()
    trace = simulate(of, fedavg(0.1, eta), local_steps=steps, rounds=4, seed=seed)
    for record in trace.rounds[:-1]:
        scale = max(abs(record.loss), record.grad2, 1.0)
        for name, ratio in (("L_h", record.L_h_ratio), ("L_g", record.L_g_ratio), ("L_tilde", record.L_tilde_ratio)):
            # Gradients of this size are rounded to a part of 1e-16, and models lie as near as their spread.
            slack = 1e-12 * scale / max((record.spread or 0.0) ** 0.5, 1e-3)
            assert ratio is None or ratio <= exact[name].value * (1 + 1e-9) + slack


@pytest.mark.parametrize("path", ["dense", "plain", "quadratic"])
def test_a_round_records_what_a_naive_loop_finds(path: str) -> None:
    of = random_quadratics(5, 4, hessian_spread=1.0, sigma2=0.1) if path == "quadratic" else network(path=path)
    record = simulate(of, fedavg(0.2, 1.5), local_steps=6, rounds=1, seed=3).rounds[0]
    # The local models, from the model that one round of eta 1 gives when a single worker has all the weight.
    rows = []
    for worker in range(5):
        alone = Participation(weights=tuple(float(i == worker) for i in range(5)))
        rows.append(
            simulate(
                of, fedavg(0.2), local_steps=6, rounds=1, seed=3, participation=alone, record=Recording(watch=False)
            ).model
        )
    models = torch.from_numpy(np.stack(rows))
    mean, everyone = models.double().mean(dim=0), np.arange(5)
    own = of.gradients(models, everyone).double()
    common = of.gradients(mean.to(models.dtype).expand(5, -1), everyone).double()
    start = of.start(3)
    slope = of.gradients(start.expand(5, -1), everyone).double().mean(dim=0)
    spread = (models.double() - mean).square().sum(dim=1).mean()
    wanted = {
        "spread": float(spread),
        "deviation2": float((own - common).mean(dim=0).square().sum()),
        "zeta2": float((common - common.mean(dim=0)).square().sum(dim=1).mean()),
        "L_tilde_ratio": float(((own - common).norm(dim=1) / (models.double() - mean).norm(dim=1)).max()),
        "L_g_ratio": float((common.mean(dim=0) - slope).norm() / (mean - start.double()).norm()),
    }
    # A network's gradients are in float32, of which differences keep fewer digits.
    tolerance = 1e-9 if path == "quadratic" else 1e-3
    for name, value in wanted.items():
        assert getattr(record, name) == pytest.approx(value, rel=tolerance), name


def test_kept_rows_are_few_but_the_sums_are_of_all(monkeypatch: pytest.MonkeyPatch) -> None:

    from fedgauge.simulation import workers

    of = random_quadratics(40, 3, hessian_spread=1.0)
    whole = simulate(of, fedavg(0.1), local_steps=4, rounds=2, compute=Compute(chunk=4)).rounds[0]
    monkeypatch.setattr(workers, "_KEPT_BYTES", 0)
    some = simulate(of, fedavg(0.1), local_steps=4, rounds=2, compute=Compute(chunk=4)).rounds[0]
    assert (some.deviation2, some.spread, some.zeta2) == (whole.deviation2, whole.spread, whole.zeta2)
    assert some.L_tilde_ratio is not None
    assert whole.L_tilde_ratio is not None
    assert 0 < some.L_tilde_ratio <= whole.L_tilde_ratio


def test_readings_have_mean_maximum_and_every_round() -> None:
    of = random_quadratics(4, 3, hessian_spread=1.0, sigma2=1.0)
    mean, most = trajectory(of, fedavg(0.1), of.start(0), local_steps=5, rounds=6, seeds=(0, 1, 2))
    rounds = mean.details["rounds"]
    assert len(rounds) == 18
    squares = [record["L_h_ratio"] ** 2 for record in rounds]
    assert mean.constants["L_h"].value == pytest.approx(np.mean(squares) ** 0.5)
    assert most.constants["L_h"].value == pytest.approx(max(squares) ** 0.5)
    assert {estimate.kind for reading in (mean, most) for estimate in reading.estimates} == {"lower"}
    assert mean.constants["L_h"].cost == {"gradient passes": 54.0}
    # Proposition 5.2: what averaged and centralised steps differ by, against what the constant allows.
    tight = of.constants()["L_h"].value
    assert all(record["drift"] <= tight * record["spread"] ** 0.5 * (1 + 1e-9) for record in rounds)


def test_identical_workers_leave_it_undefined() -> None:
    of = random_quadratics(3, 2, hessian_spread=0.0, linear_spread=0.0)
    mean, _ = trajectory(of, fedavg(0.1), of.start(0) + 1, local_steps=5)
    assert "L_h" not in mean.constants
    assert any("L_h is undefined on this trajectory" in note for note in mean.notes)
    assert mean.constants["L_g"].value > 0


def test_one_worker_and_one_step() -> None:
    of = random_quadratics(1, 2)
    mean, _ = trajectory(of, fedavg(0.1), of.start(0) + 1, local_steps=1)
    assert "L_h" not in mean.constants
    assert any("0/0" in note for note in mean.notes)


def test_a_diverging_trajectory_is_refused() -> None:
    of = random_quadratics(3, 2)
    with pytest.raises(InputError, match="diverges from this model"):
        trajectory(of, fedavg(1e200), of.start(0) + 1, local_steps=5)
    with pytest.raises(InputError, match="no model near convergence"):
        near_convergence(of, fedavg(1e200), local_steps=5)


def test_a_model_that_does_not_fit_is_refused() -> None:
    of = random_quadratics(3, 2)
    with pytest.raises(InputError, match="5 parameters, but the federation's has 2"):
        trajectory(of, fedavg(0.1), torch.zeros(5), local_steps=5)
    with pytest.raises(InputError, match="diverged"):
        trajectory(of, fedavg(0.1), torch.tensor([1.0, np.nan]), local_steps=5)


def test_near_convergence_is_what_it_says() -> None:
    of = random_quadratics(4, 3, linear_spread=1.0)
    model, said = near_convergence(of, fedavg(0.05), local_steps=2, fall=0.01, window=5)
    trace = simulate(of, fedavg(0.05), local_steps=2, rounds=said["round"], record=Recording(every=5, watch=False))
    np.testing.assert_array_equal(trace.model, model.numpy())
    falls = -np.diff(trace.losses) / np.abs(trace.losses[:-1])
    assert said["reached"]
    assert falls[-1] < 0.01
    assert (falls[:-1] >= 0.01).all()
    _, short = near_convergence(of, fedavg(0.05), local_steps=2, fall=1e-9, window=5, most=10)
    assert not short["reached"]


def test_a_rising_loss_is_not_near_convergence() -> None:
    # f = x^2/2 + 1, on which a step of gamma = 2.05 multiplies x by -1.05: from 1e-4, f rises by parts of itself.
    of = QuadraticFederation([[[1.0]]], [[0.0]], constant=[1.0], start=[1e-4])
    _, said = near_convergence(of, fedavg(2.05), local_steps=1, most=20)
    assert (said["reached"], said["round"]) == (False, 20)


def test_rounds_that_exceed_a_constant_are_found() -> None:
    records = [
        Round(0, 1.0, 1.0, spread=1.0, deviation2=0.25, L_tilde_ratio=3.0, L_g_ratio=1.0),
        Round(1, 1.0, 1.0, spread=1.0, deviation2=1.0, L_tilde_ratio=1.0, L_g_ratio=0.5),
        Round(2, 1.0, 1.0),
    ]
    assert exceeded(records, {"L_h": 0.9, "L_tilde": 2.0, "L_g": 1.0, "sigma": 0.0}) == [
        (0, "L_tilde", 3.0),
        (1, "L_h", 1.0),
    ]
    assert exceeded(records, {"L_h": 1.0}) == []


def test_some_workers_alone_prove_nothing_of_the_l_h_of_all() -> None:
    # A = 2, 0, 1, ..., 1: L_h is sqrt((1 + 1)/8) = 1/2, and the first two workers by themselves show a ratio of 1.
    curvatures = [2.0, 0.0] + 6 * [1.0]
    of = QuadraticFederation([[[a]] for a in curvatures], [[1.0 if i % 2 else -1.0] for i in range(8)])
    # The value is the upper end of an interval that holds the truth, which is wider than the rounding of 1/2.
    tight = of.constants()["L_h"].value
    assert tight == pytest.approx(0.5, rel=1e-12)
    two = Participation("without-replacement", 2)
    trace = simulate(of, fedavg(0.1), local_steps=3, rounds=60, participation=two)
    seen = max(record.L_h_ratio or 0.0 for record in trace.rounds)
    assert seen == pytest.approx((8 / 2) ** 0.5 * tight)
    assert exceeded(trace.rounds, {"L_h": tight}) == []
    kinds = {item.symbol: item.kind for item in readings([trace], {})[0].estimates}
    assert kinds == {"L_h": "sample", "L_tilde": "lower", "zeta_rms": "sample"}
    everyone = simulate(of, fedavg(0.1), local_steps=3, rounds=4)
    assert exceeded(everyone.rounds, {"L_h": 0.1})
    assert readings([everyone], {})[0].constants["L_h"].kind == "lower"


def test_intervals_cover_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        # Rounds of a run depend on each other through what its seed gave them.
        runs = generator.standard_normal((5, 1)) + 0.3 * generator.standard_normal((5, 10)) + 7
        (_, low, high), _ = of_runs(runs.tolist())
        covered += low <= 7 <= high
    assert binom.ppf(0.001, 400, CONFIDENCE) <= covered <= binom.ppf(0.999, 400, CONFIDENCE)
