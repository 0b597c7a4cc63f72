"""Certified constants against truth: quadratics from the same matrices, and ascent on softmax regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional
from verification.tests.adversary import Softmax, climb, draws, norm

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.federation.kernels.base import squared_error
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.theory.answer import bound
from fedgauge.theory.search import best_gamma
from fedgauge_verification import Certified, certify

pytestmark = pytest.mark.usefixtures("one_thread")


def made(
    own: float = 1.0, *, workers: int = 4, size: int = 6, inputs: int = 3, classes: int = 3, l2: float = 0.05
) -> SupervisedFederation:
    """Workers whose samples are, with probability ``own``, of one class each."""
    generator = torch.Generator().manual_seed(0)
    number = torch.arange(workers).repeat_interleave(size) % classes
    other = torch.randint(classes, (workers * size,), generator=generator)
    y = torch.where(torch.rand(workers * size, generator=generator) < own, number, other)
    centres = 2 * torch.randn(classes, inputs, generator=generator, dtype=torch.float64)
    x = centres[y] + 0.7 * torch.randn(workers * size, inputs, generator=generator, dtype=torch.float64)
    shards = [range(worker * size, (worker + 1) * size) for worker in range(workers)]
    torch.manual_seed(1)
    module = nn.Linear(inputs, classes).double()
    return SupervisedFederation(module, functional.cross_entropy, x, y, shards, l2=l2, batch_size=2)


def digits(percent: float, model: str = "softmax", **options: Any) -> SupervisedFederation:
    dataset = fg.standardise(fg.load_dataset("digits"), "unit")
    per_worker = int(np.bincount(dataset.train_labels).min())
    partition = fg.make_partition(dataset, "paper", 10, percent=percent, per_worker=per_worker)
    from fedgauge.federation.models import make_model

    chosen = make_model(model, dataset.train_inputs.shape[1:], 10, **options)
    inputs, labels = (torch.from_numpy(np.array(part)) for part in (dataset.train_inputs, dataset.train_labels))
    return SupervisedFederation(chosen.make, chosen.loss, inputs, labels, partition, l2=chosen.l2)


def check_upper_bounds(federation: SupervisedFederation, found: dict[str, torch.Tensor], least: Any) -> None:
    """Nothing found exceeds its bound, and every bound is within a factor of what was found."""
    constants = certify(federation).constants
    for symbol, value in found.items():
        bound = constants[symbol]
        assert bound.kind == "upper"
        # Differences of gradients at close models lose digits: the smallest distances are about 1e-3.
        assert float(value) <= bound.value * (1 + 1e-9), f"{symbol} = {float(value)} was found"
        assert float(value) >= least[symbol] * bound.value, f"only {float(value)} of {bound.value} for {symbol}"


def largest(
    federation: SupervisedFederation, pairs: torch.Tensor, sets: torch.Tensor, models: torch.Tensor, steps: int
) -> dict[str, torch.Tensor]:
    """What ascent finds from pairs of models, sets of one model a worker, and single models."""
    truth = Softmax(federation)
    secants = climb(truth.secant, pairs, steps).amax(dim=0)
    zetas = climb(truth.divergence, models, steps).amax(dim=0)
    return {
        "L_tilde": secants[:-1].max(),
        "L_g": secants[-1],
        "L_h": climb(truth.pseudo, sets, steps).max(),
        "zeta": zetas.max(),
        "zeta_rms": zetas.square().mean().sqrt(),
        "sigma": (climb(truth.variance, models, steps).max() / federation.batch_size).sqrt(),
    }


_LEAST = {"L_tilde": 0.8, "L_g": 0.8, "L_h": 0.8, "zeta": 0.7, "zeta_rms": 0.7, "sigma": 0.7}


@pytest.mark.parametrize(
    ("how", "least"),
    [
        ({"own": 0.5}, {**_LEAST, "L_h": 0.6, "zeta": 0.6, "zeta_rms": 0.55}),
        ({"classes": 2, "l2": 0.01}, _LEAST),
        ({"own": 0.0, "workers": 2, "size": 20}, {**_LEAST, "L_h": 0.55, "zeta": 0.3, "zeta_rms": 0.3}),
    ],
    ids=["half of one class", "two classes", "alike"],
)
def test_softmax_bounds_hold_against_ascent_and_are_not_far_off(how: Any, least: dict[str, float]) -> None:
    federation = made(**how)
    N, (C, q) = federation.num_workers, Softmax(federation).shape
    found = largest(federation, draws(1000, 2, C, q), draws(1000, N, C, q), draws(1000, C, q), steps=20)
    check_upper_bounds(federation, found, least)


def test_softmax_bounds_hold_on_digits() -> None:
    """From where the constants are large: two classes left by the biases, or everything taken for what it is not."""
    federation = digits(100.0)
    truth = Softmax(federation)
    C, q = truth.shape
    pair = torch.zeros(C, 1, dtype=torch.float64)
    pair[0], pair[1] = 1.0, -1.0
    two = torch.zeros(C, q, dtype=torch.float64)
    two[2:, -1] = -12.0
    means = truth.x.mean(dim=1)
    along = torch.stack([pair * mean for mean in means])
    pairs = torch.stack([two.expand(10, C, q), two + 0.01 * along], dim=1)
    sets = torch.stack([two + size * (along - along.mean(dim=0)) for size in (0.01, 0.1, 1.0)])
    fit = torch.stack([(means - means.mean(dim=0)).roll(shift, 0) for shift in range(10)])
    wrong = torch.cat([10 * fit, -10 * fit])
    check_upper_bounds(
        federation,
        largest(federation, pairs, sets, wrong, steps=15),
        {**_LEAST, "zeta": 0.5, "zeta_rms": 0.5, "L_h": 0.6},
    )


def test_the_smoothness_of_softmax_is_a_supremum() -> None:
    """Biases alone bring every sample to p = (1/2, 1/2, 0): the Hessians' largest eigenvalues there are the bounds."""
    federation = made()
    constants, truth = certify(federation).constants, Softmax(federation)
    model = torch.zeros(*truth.shape, dtype=torch.float64)
    model[2:, -1] = -40.0

    def hessian(worker: int | None) -> torch.Tensor:
        def gradient(flat: torch.Tensor) -> torch.Tensor:
            gradients = truth.gradients(flat.reshape(1, *truth.shape))
            return (gradients.mean(dim=0) if worker is None else gradients[worker]).reshape(-1)

        found = torch.autograd.functional.jacobian(gradient, model.reshape(-1))  # type: ignore[no-untyped-call]
        assert isinstance(found, torch.Tensor)
        return found

    hessians = torch.stack([hessian(worker) for worker in range(federation.num_workers)])
    whole = torch.linalg.eigvalsh(hessian(None))
    assert float(whole[-1]) == pytest.approx(constants["L_g"].value, rel=1e-9)
    assert float(whole[0]) == pytest.approx(constants["mu"].value, rel=1e-9)
    assert float(torch.linalg.eigvalsh(hessians).max()) == pytest.approx(constants["L_tilde"].value, rel=1e-9)
    off = hessians - hessians.mean(dim=0)
    near = torch.linalg.eigvalsh((off @ off).mean(dim=0))[-1].sqrt()
    assert float(near) == pytest.approx(constants["L_h"].low, rel=1e-9)
    zero = torch.zeros(1, *truth.shape, dtype=torch.float64)
    assert float(truth.divergence(zero).max()) == pytest.approx(constants["zeta"].low, rel=1e-9)
    assert float(truth.variance(zero).max() / 2) ** 0.5 == pytest.approx(constants["sigma"].low, rel=1e-9)


def test_the_largest_entry_of_a_gradient_on_a_ball() -> None:
    federation = made()
    G = certify(federation, radius=3.0).constants["G"]
    assert "G" not in certify(federation).constants
    truth = Softmax(federation)
    models = draws(1000, *truth.shape).clamp(-3.0, 3.0)
    residuals = truth.residuals(models.unsqueeze(1)).unsqueeze(-1) * truth.x.unsqueeze(-2)
    entries = (residuals + truth.l2 * models[:, None, None]).abs().amax()
    assert 0.9 * G.value <= float(entries) <= G.value


def test_the_gap_and_the_distance_contain_those_of_an_independent_minimiser() -> None:
    federation = made()
    truth, start = Softmax(federation), federation.start(0)
    weights = start[: 3 * 3].reshape(3, 3)
    first = torch.cat([weights, start[9:].reshape(3, 1)], dim=1)

    def f(flat: Any) -> tuple[float, Any]:
        model = torch.tensor(flat.reshape(truth.shape))
        logs = torch.log_softmax(truth.x @ model.T, dim=-1)
        loss = -(logs * truth.y).sum(dim=-1).mean() + truth.l2 / 2 * model.square().sum()
        return float(loss), truth.gradients(model.unsqueeze(0)).mean(dim=0).numpy().ravel()

    best = minimize(f, first.numpy().ravel(), jac=True, method="BFGS", options={"gtol": 1e-11})
    found = certify(federation)
    # BFGS in float64 ends within 1e-11 of the least loss and 1e-8 of the best model.
    assert (
        found.constants["F"].low - 1e-10 <= f(first.numpy().ravel())[0] - best.fun <= found.constants["F"].value + 1e-10
    )
    assert found.constants["F"].value - found.constants["F"].low < 1e-6
    distance = float(norm(first - torch.tensor(best.x.reshape(truth.shape)))) ** 2
    assert found.constants["d0"].low - 1e-6 <= distance <= found.constants["d0"].value + 1e-6
    assert found.loss - found.gap <= best.fun + 1e-10


def test_an_unfinished_search_is_paid_for_in_the_gap() -> None:
    federation = digits(50.0)
    short, full = certify(federation, passes=3), certify(federation)
    assert short.gap > 1e-4 > full.gap
    assert short.loss - short.gap <= full.loss
    assert short.constants["F"].value >= full.constants["F"].value
    assert short.constants["d0"].value >= full.constants["d0"].low


def test_identical_workers_do_not_diverge() -> None:
    base = made()
    whole = [range(len(base.inputs))] * 3
    same = SupervisedFederation(base.module, base.loss, base.inputs, base.targets, whole, l2=0.05)
    constants = certify(same).constants
    assert constants["zeta"].value == constants["zeta_rms"].value == 0
    assert constants["L_tilde"].value == pytest.approx(constants["L_g"].value, rel=1e-12)
    assert constants["L_h"].low == 0 < constants["L_h"].value < constants["L_g"].value / 2


# -- linear regression -------------------------------------------------------------------------------------------


def as_quadratics(federation: SupervisedFederation) -> fg.QuadraticFederation:
    """The same federation with its full Hessians, in the order of the flat model."""
    hessians, linear, constant = [], [], []
    C = 10
    for worker in range(federation.num_workers):
        parts = list(federation.blocks(worker))
        x = torch.cat([part for part, _ in parts]).flatten(1).double().numpy()
        y = np.eye(C)[torch.cat([part for _, part in parts]).numpy()]
        p, n = x.shape[1], len(x)
        gram, mean = x.T @ x / n, x.mean(axis=0)
        hessian = np.zeros((C * p + C, C * p + C))
        for c in range(C):
            own = slice(c * p, c * p + p)
            hessian[own, own] = gram
            hessian[own, C * p + c] = hessian[C * p + c, own] = mean
            hessian[C * p + c, C * p + c] = 1.0
        hessians.append(hessian + federation.l2 * np.eye(len(hessian)))
        linear.append(-np.concatenate([(y.T @ x / n).ravel(), y.mean(axis=0)]))
        constant.append(0.5 * (y**2).sum(axis=1).mean())
    return fg.QuadraticFederation(hessians, linear, constant)


def test_linear_regression_is_its_quadratic_federation() -> None:
    federation = digits(100.0, "linear")
    found, quadratics = certify(federation), as_quadratics(federation)
    known, (best, f_star) = quadratics.constants(), quadratics.minimiser()
    assert best is not None
    for symbol in ("L_tilde", "L_g", "L_h", "L_h_paper", "mu", "kappa", "varphi"):
        assert found.constants[symbol].kind == "exact"
        assert found.constants[symbol].value == pytest.approx(known[symbol].value, rel=1e-8, abs=1e-8)
    start = federation.start(0).double()
    everyone = np.arange(10)
    losses, gradients = quadratics.evaluate(start.expand(10, -1), everyone)
    values = {"f_star": f_star, "F": float(losses.mean()) - f_star, "d0": float(np.sum((start.numpy() - best) ** 2))}
    values["zeta"] = float((gradients - gradients.mean(dim=0)).norm(dim=1).max())
    for symbol, value in values.items():
        estimate = found.constants[symbol]
        # The smallest eigenvalue that is not 0 is about 1e-5 of the largest, so that rounding moves x* visibly.
        assert estimate.value == pytest.approx(value, rel=1e-4)
        # The quadratics were computed in another order, which moves them by rounding too.
        assert estimate.low * (1 - 1e-8) <= value <= estimate.high * (1 + 1e-8)
    assert found.constants["zeta"].kind == found.constants["sigma"].kind == "lower"
    np.testing.assert_allclose(found.model, best, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_regression_on_more_inputs_than_samples_is_not_strongly_convex(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    module, targets = nn.Linear(9, 1).double(), torch.ones(4, 1, dtype=torch.float64)
    federation = SupervisedFederation(module, squared_error, x, targets, [[0, 1], [2, 3]])
    found = certify(federation)
    assert (found.constants["mu"].value, found.constants["mu"].kind) == (0.0, "exact")
    assert "mu" not in found.theorem_values()[0]


def test_the_noise_of_linear_regression_at_the_start() -> None:
    federation = digits(50.0, "linear")
    x, y = next(federation.blocks(0))
    model = federation.start(0)
    each = torch.stack(
        [federation._rows.gradients(model[None], x[None, s : s + 1], y[None, s : s + 1])[0] for s in range(len(x))]
    )
    variances = [certify(federation, batch_size=size).constants["sigma"].value ** 2 for size in (1, 4)]
    assert variances[0] == pytest.approx(4 * variances[1])
    assert variances[0] >= float(each.double().var(dim=0, correction=0).sum()) * (1 - 1e-5)


# -- laws --------------------------------------------------------------------------------------------------------


def values_of(found: Certified) -> dict[str, float]:
    return {name: estimate.value for name, estimate in found.constants.items()}


def reshared(federation: SupervisedFederation, shards: list[Any]) -> SupervisedFederation:
    how: Any = {"l2": federation.l2, "batch_size": federation.batch_size}
    return SupervisedFederation(
        federation.module, federation.loss, federation.inputs, federation.targets, shards, **how
    )


@pytest.mark.parametrize("loss", [functional.cross_entropy, squared_error])
def test_constants_do_not_depend_on_order_or_copies_of_workers(loss: Any) -> None:
    base = made(own=0.5)
    base = SupervisedFederation(
        base.module, loss, base.inputs, base.targets, [range(6 * i, 6 * i + 6) for i in range(4)], l2=0.05, batch_size=2
    )
    shards = [range(6 * i, 6 * i + 6) for i in range(4)]
    expected = values_of(certify(base))
    for others in ([shards[i] for i in (2, 0, 3, 1)], shards + shards):
        found = values_of(certify(reshared(base, others)))
        # The minimiser is found to a relative gap of 1e-8, and margins for rounding grow with the samples.
        assert found == pytest.approx(expected, rel=1e-6)


def test_constants_scale_with_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    module = nn.Linear(4, 2, bias=False).double()
    shards = [range(10), range(10, 20)]
    one = values_of(certify(SupervisedFederation(module, squared_error, x, y, shards)))
    three = values_of(certify(SupervisedFederation(module, squared_error, 3**0.5 * x, 3**0.5 * y, shards)))
    still = ("d0", "kappa", "varphi")
    assert three == pytest.approx({name: value * (1 if name in still else 3) for name, value in one.items()})


# -- in the theorems ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theorem", ["nonconvex", "partial", "momentum", "strongly-convex"])
def test_theorems_are_certified_and_hold_for_a_run(theorem: str) -> None:
    federation = digits(100.0)
    found = certify(federation, start=federation.start(0))
    values, kinds = found.theorem_values()
    own: Any = {"partial": {"M": 5}, "momentum": {"beta": 0.5}}.get(theorem, {})
    values |= {"I": 4, "R": 30, **own}
    tuned = best_gamma(theorem, **{name: v for name, v in values.items() if name != "L_tilde"})
    result = bound(theorem, kinds=kinds, gamma=float(tuned.gamma), **values)
    assert bool(result.bound.certified)
    assert result.versions["prior"].total is not None
    assert result.bound.total < result.versions["prior"].total
    algorithm = fg.momentum(float(tuned.gamma), 0.5) if theorem == "momentum" else fg.fedavg(float(tuned.gamma))
    participation = fg.Participation("with-replacement", 5) if theorem == "partial" else fg.Participation()
    trace = fg.simulate(
        federation,
        algorithm,
        local_steps=4,
        rounds=30,
        participation=participation,
        record=fg.Recording(watch=False),
        compute=fg.Compute(processes=1),
    )
    seen = trace.losses - (found.loss - found.gap) if theorem == "strongly-convex" else trace.grad2
    assert seen[:-1].min() <= result.bound.total


# -- bad input ---------------------------------------------------------------------------------------------------


def test_models_whose_curvature_is_not_known_are_refused() -> None:
    base = made()
    with pytest.raises(InputError, match="choose the model softmax or linear"):
        certify(digits(50.0, "mlp"))
    shards = [range(24)]
    twice = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    with pytest.raises(InputError, match="one Linear layer"):
        certify(SupervisedFederation(twice, functional.cross_entropy, base.inputs, base.targets, shards))
    with pytest.raises(InputError, match="one Linear layer"):
        certify(SupervisedFederation(base.module, functional.multi_margin_loss, base.inputs, base.targets, shards))
    soft = functional.one_hot(base.targets, 3).double()
    with pytest.raises(InputError, match="classes as whole numbers"):
        certify(SupervisedFederation(base.module, functional.cross_entropy, base.inputs, soft, shards))


def test_bad_arguments_are_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="has 3 parameters, but the federation's has 12"):
        certify(made(), start=torch.zeros(3))
    with pytest.raises(InputError, match="finite"):
        certify(made(), start=torch.full((12,), torch.nan))
    with pytest.raises(InputError, match="batch_size must be a whole number"):
        certify(made(), batch_size=0)
    with pytest.raises(InputError, match="radius must be a finite number above 0"):
        certify(made(), radius=-1.0)


def test_without_l2_nothing_needs_strong_convexity() -> None:
    found = certify(made(l2=0.0))
    assert found.constants["mu"].value == 0
    assert "d0" not in found.constants
    assert found.constants["F"].value == pytest.approx(found.loss)
    assert np.isinf(found.gap)
    values, kinds = found.theorem_values()
    assert bool(bound("nonconvex", kinds=kinds, I=2, R=10, gamma=1e-3, **values).bound.certified)
    with pytest.raises(InputError, match="lacks mu"):
        bound("strongly-convex", I=2, R=10, gamma=1e-3, d0=1.0, **values)
