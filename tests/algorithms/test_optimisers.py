"""Local optimisers, server momentum and schedules against plain loops with ``torch.optim``, on the same batches."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedgauge.algorithms import Schedule, fedavg, fingerprint, make_algorithm, with_optimiser, with_schedules
from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording

ROUNDS, STEPS, SEED = 5, 10, 3
GAMMA = 0.05
Gradient = Callable[[torch.Tensor, int, Any], torch.Tensor]


def quadratics() -> tuple[QuadraticFederation, Gradient]:
    federation = random_quadratics(3, 4, sigma2=0.1, linear_spread=3.0, seed=1)
    A, b = torch.from_numpy(federation.hessians), torch.from_numpy(federation.linear)
    return federation, lambda x, worker, noise: A[worker] @ x + b[worker] + noise[0]


def network() -> tuple[SupervisedFederation, Gradient]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (60,), generator=generator)

    def module() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    shards = [range(10), range(10, 30), range(30, 60)]
    federation = SupervisedFederation(module, nn.functional.cross_entropy, x, y, shards, batch_size=5)

    def gradient(row: torch.Tensor, worker: int, numbers: Any) -> torch.Tensor:
        leaf = row.detach().clone().requires_grad_()
        outputs = torch.func.functional_call(federation.module, federation.unflatten(leaf), (x[numbers[0]],))
        return torch.autograd.grad(nn.functional.cross_entropy(outputs, y[numbers[0]]), leaf)[0]

    return federation, gradient


def loop(
    federation: Federation,
    gradient: Gradient,
    inner: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    state: str = "kept",
    clip: float | None = None,
    factor: Callable[[int, int], float] = lambda round, step: 1.0,
) -> torch.Tensor:
    """What a researcher would write: a model and an optimiser per worker, and an optimiser of the server."""
    N = federation.num_workers
    world = nn.Parameter(federation.start(SEED).clone())
    server = outer([world])
    models = [nn.Parameter(world.detach().clone()) for _ in range(N)]
    optimisers = [inner([model]) for model in models]
    streams = Streams(SEED, Purpose.NOISE)
    for r in range(ROUNDS):
        for i, model in enumerate(models):
            draws = federation.draws(streams, r, np.array([i]), np.array([0]), STEPS)
            with torch.no_grad():
                model.copy_(world)
            for k in range(STEPS):
                for group in optimisers[i].param_groups:
                    group["lr"] = GAMMA * factor(r, k)
                model.grad = gradient(model, i, draws[k])
                if clip is not None:
                    nn.utils.clip_grad_norm_([model], clip)
                optimisers[i].step()
        world.grad = world.detach() - torch.stack([model.detach() for model in models]).mean(dim=0)
        server.step()
        if state == "reset":
            optimisers = [inner([model]) for model in models]
        if state == "averaged":
            held = [optimiser.state[model] for optimiser, model in zip(optimisers, models, strict=True)]
            for name, value in held[0].items():
                if isinstance(value, torch.Tensor):
                    mean = torch.stack([each[name] for each in held]).mean(dim=0)
                    for each in held:
                        each[name] = mean.clone()
    return world.detach()


INNER: dict[str, tuple[dict[str, Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": ({}, lambda p: torch.optim.SGD(p, GAMMA)),
    "momentum": ({"local_momentum": 0.9}, lambda p: torch.optim.SGD(p, GAMMA, momentum=0.9)),
    "nesterov": (
        {"local_momentum": 0.8, "local_nesterov": True},
        lambda p: torch.optim.SGD(p, GAMMA, momentum=0.8, nesterov=True),
    ),
    "decay": ({"weight_decay": 0.3}, lambda p: torch.optim.SGD(p, GAMMA, weight_decay=0.3)),
    "all of sgd": (
        {"local_momentum": 0.9, "local_nesterov": True, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, GAMMA, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adamw": ({"optimiser": "adamw"}, lambda p: torch.optim.AdamW(p, GAMMA)),
    "adamw's own numbers": (
        {
            "optimiser": "adamw",
            "local_beta1": 0.8,
            "local_beta2": 0.9,
            "local_epsilon": 1e-3,
            "weight_decay": 0.2,
        },
        lambda p: torch.optim.AdamW(p, GAMMA, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2),
    ),
}


def average(p: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(p, 1.0)


def run(federation: Federation, algorithm: Algorithm, **how: Any) -> np.ndarray[Any, Any]:
    how = {"local_steps": STEPS, "rounds": ROUNDS, "compute": Compute(1), **how}
    record = Recording(every=ROUNDS, watch=False)
    return simulate(federation, algorithm, seed=SEED, record=record, **how).model


def assert_equal(found: Any, expected: torch.Tensor) -> None:
    """Equal to 1e-9 of the model's size after 50 steps; other orders of the same sums are all that differs."""
    size = float(expected.abs().max())
    np.testing.assert_allclose(found / size, expected.numpy() / size, rtol=0, atol=1e-9)


STATEFUL = ("momentum", "nesterov", "all of sgd", "adamw", "adamw's own numbers")
CASES: list[tuple[str, str | None]] = [(case, None) for case in ("sgd", "decay")]
CASES += [(case, state) for case in STATEFUL for state in ("reset", "kept", "averaged")]


@pytest.mark.parametrize("problem", [quadratics, network])
@pytest.mark.parametrize(("case", "state"), CASES)
def test_fifty_steps_are_those_of_torch(problem: Any, case: str, state: str | None) -> None:
    federation, gradient = problem()
    options, inner = INNER[case]
    how = {**options, "optimiser_state": state} if state else options
    found = run(federation, make_algorithm("fedavg", gamma=GAMMA, **how))
    assert_equal(found, loop(federation, gradient, inner, average, state or "reset"))


@pytest.mark.parametrize("problem", [quadratics, network])
@pytest.mark.parametrize("clip", [0.05, 1.0])
def test_gradients_are_clipped_as_torch_clips_them(problem: Any, clip: float) -> None:
    federation, gradient = problem()
    found = run(federation, make_algorithm("fedavg", gamma=GAMMA, local_momentum=0.9, clip=clip))
    inner = INNER["momentum"][1]
    assert_equal(found, loop(federation, gradient, inner, average, "reset", clip=clip))
    assert not np.allclose(found, run(federation, make_algorithm("fedavg", gamma=GAMMA, local_momentum=0.9)))


@pytest.mark.parametrize("problem", [quadratics, network])
@pytest.mark.parametrize("nesterov", [False, True])
def test_the_server_steps_as_torch_does_on_the_mean_change(problem: Any, nesterov: bool) -> None:
    federation, gradient = problem()
    found = run(federation, make_algorithm("fedavgm", gamma=GAMMA, eta=0.6, beta=0.8, nesterov=nesterov))
    expected = loop(
        federation,
        gradient,
        INNER["sgd"][1],
        lambda p: torch.optim.SGD(p, 0.6, momentum=0.8, nesterov=nesterov),
    )
    assert_equal(found, expected)


@pytest.mark.parametrize("problem", [quadratics, network])
def test_diloco_is_adamw_inside_and_nesterov_outside(problem: Any) -> None:
    federation, gradient = problem()
    found = run(federation, make_algorithm("diloco", gamma=GAMMA))
    expected = loop(
        federation,
        gradient,
        lambda p: torch.optim.AdamW(p, GAMMA, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.7, momentum=0.9, nesterov=True),
    )
    assert_equal(found, expected)


@pytest.mark.slow
def test_diloco_is_that_of_torchft(tmp_path: Path) -> None:
    # In a process of its own: torchft starts a server, and threads that a fork would not survive.
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.algorithms.torchft_peer", str(tmp_path / "model.npy")]
    subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}, check=True, timeout=120
    )
    federation, _ = network()
    found = run(federation, make_algorithm("diloco", gamma=GAMMA))
    assert_equal(found, torch.from_numpy(np.load(tmp_path / "model.npy")))


# -- schedules ---------------------------------------------------------------------------------------------------


def rates_of(make: Callable[[torch.optim.Optimizer], Any], number: int) -> list[float]:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
    scheduler = make(optimiser)
    rates = []
    for _ in range(number):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


lr = torch.optim.lr_scheduler
SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "constant": lambda o: lr.ConstantLR(o, factor=1.0),
    "step,every=3,factor=0.5": lambda o: lr.StepLR(o, 3, 0.5),
    "cosine,over=12": lambda o: lr.CosineAnnealingLR(o, 12),
    "cosine,over=12,end=0.1": lambda o: lr.CosineAnnealingLR(o, 12, eta_min=0.1),
    "linear,over=12": lambda o: lr.LinearLR(o, 1.0, 0.0, 12),
    "linear,over=8,end=0.25": lambda o: lr.LinearLR(o, 1.0, 0.25, 8),
    "constant,warmup=4": lambda o: lr.LinearLR(o, 0.25, 1.0, 3),
    "cosine,over=12,warmup=4": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.25, 1.0, 3), lr.CosineAnnealingLR(o, 8)], [4]
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("text", SCHEDULES)
def test_schedules_are_those_of_torch(text: str) -> None:
    schedule = Schedule.parse(text)
    np.testing.assert_allclose([schedule.at(t) for t in range(12)], rates_of(SCHEDULES[text], 12), atol=1e-12)
    assert Schedule.parse(str(schedule)) == schedule


@pytest.mark.parametrize("problem", [quadratics, network])
@pytest.mark.parametrize("case", ["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("by", ["round", "step"])
def test_the_rate_of_the_workers_follows_its_schedule(problem: Any, case: str, by: str) -> None:
    federation, gradient = problem()
    schedule = Schedule("cosine", by=by, over=ROUNDS if by == "round" else ROUNDS * STEPS, warmup=2)
    options, inner = INNER[case]
    how = {"optimiser_state": "kept"} if options else {}
    algorithm = make_algorithm("fedavg", gamma=GAMMA, gamma_schedule=str(schedule), **options, **how)
    expected = loop(
        federation,
        gradient,
        inner,
        average,
        factor=lambda r, k: schedule.at(r if by == "round" else r * STEPS + k),
    )
    assert_equal(run(federation, algorithm), expected)


def test_the_rate_of_the_server_follows_its_schedule() -> None:
    federation, gradient = quadratics()
    schedule = Schedule("linear", over=ROUNDS, end=0.1)

    def outer(p: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimiser = torch.optim.SGD(p, 0.9, momentum=0.5)
        scheduler = lr.LinearLR(optimiser, 1.0, 0.1, ROUNDS)
        optimiser.register_step_post_hook(lambda *_: scheduler.step())
        return optimiser

    algorithm = make_algorithm("fedavgm", gamma=GAMMA, eta=0.9, beta=0.5, eta_schedule=str(schedule))
    assert_equal(run(federation, algorithm), loop(federation, gradient, INNER["sgd"][1], outer))
    by_step = f"linear,over={ROUNDS * STEPS},end=0.1,by=step"
    algorithm = make_algorithm("fedavgm", gamma=GAMMA, eta=0.9, beta=0.5, eta_schedule=by_step)
    assert_equal(run(federation, algorithm), loop(federation, gradient, INNER["sgd"][1], outer))


def test_unequal_steps_advance_the_clock_by_their_mean() -> None:
    federation, _ = quadratics()
    algorithm = make_algorithm("fedavg", gamma=GAMMA, gamma_schedule="step,every=1,factor=0.5,by=step")
    found = run(federation, algorithm, local_steps=[1, 2, 6], rounds=2)
    A, b = federation.hessians, federation.linear
    x, done = federation.first_model, 0.0
    streams = Streams(SEED, Purpose.NOISE)
    for r in range(2):
        ends = []
        for i, steps in enumerate((1, 2, 6)):
            y, noise = x, federation.draws(streams, r, np.array([i]), np.array([0]), steps)
            for k in range(steps):
                y = y - GAMMA * 0.5 ** np.floor(done + k) * (A[i] @ y + b[i] + noise[k][0].numpy())
            ends.append(y)
        x, done = np.mean(ends, axis=0), done + 3.0
    np.testing.assert_allclose(found, x, rtol=1e-12)


@pytest.mark.parametrize("state", ["reset", "averaged"])
def test_weights_that_do_not_add_up_to_one_leave_an_averaged_state_an_average(state: str) -> None:
    # Two draws with these weights weigh between 0.3 and 3.4 together; v would become negative or grow with them.
    federation = random_quadratics(3, 4, sigma2=0.1, linear_spread=3.0, seed=1)
    who = Participation("with-replacement", 2, (1, 1, 10))
    algorithm = make_algorithm("fedavg", gamma=0.01, optimiser="adamw", optimiser_state=state)
    assert np.isfinite(run(federation, algorithm, participation=who, rounds=50)).all()


# -- what is refused ---------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown": ("fedavg", {"optimiser": "adam"}, "did you mean adamw"),
    "of the other": ("fedavg", {"optimiser": "adamw", "local_momentum": 0.9}, "use sgd"),
    "no momentum": ("fedavg", {"local_nesterov": True}, "needs local_momentum"),
    "no state": ("fedavg", {"weight_decay": 0.1, "optimiser_state": "kept"}, "sgd without local_momentum has none"),
    "unknown state": ("fedavg", {"local_momentum": 0.9, "optimiser_state": "keep"}, "did you mean kept"),
    "clip": ("fedavg", {"clip": 0.0}, "clip must be"),
    "scaffold": ("scaffold", {"local_momentum": 0.9}, "control variates"),
    "fednova": ("fednova", {"optimiser": "adamw"}, "counts the steps of plain local SGD"),
    "momentum": ("momentum", {"local_momentum": 0.9}, "of its own"),
    "minibatch": ("minibatch", {"clip": 1.0}, "takes no local steps"),
    "diloco": ("diloco", {"local_momentum": 0.9}, "steps of its own"),
    "shape": ("fedavg", {"gamma_schedule": "cosin,over=3"}, "did you mean cosine"),
    "no end": ("fedavg", {"gamma_schedule": "cosine"}, "needs over"),
    "too short": ("fedavg", {"gamma_schedule": "cosine,over=3,warmup=3"}, "larger than the warm-up"),
    "by": ("fedavg", {"gamma_schedule": "cosine,over=3,by=epoch"}, "by=round or by=step"),
    "key": ("fedavg", {"gamma_schedule": "cosine,ower=3"}, "did you mean over"),
    "number": ("fedavg", {"gamma_schedule": "cosine,over=3.5"}, "must be a whole number"),
    "every": ("fedavg", {"gamma_schedule": "step"}, "needs every"),
    "within a round": ("scaffold", {"gamma_schedule": "step,every=3,by=step"}, "the same gamma"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused(case: str) -> None:
    name, options, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        make_algorithm(name, gamma=0.1, **options)


def test_algorithms_of_ones_own_are_refused() -> None:
    from dataclasses import replace

    own = replace(fedavg(0.1), name="mine", step=lambda local, gradient: {"x": local["x"] - gradient})
    with pytest.raises(InputError, match="local steps of its own"):
        with_optimiser(own, "adamw")
    with pytest.raises(InputError, match="must have a name"):
        with_schedules(own, "step,every=3")
    with pytest.raises(InputError, match="already"):
        with_schedules(with_schedules(fedavg(0.1), "step,every=3"), None, "step,every=3")


def test_a_schedule_arrives_in_other_processes() -> None:
    federation, _ = quadratics()
    sent = make_algorithm("diloco", gamma=GAMMA, gamma_schedule="cosine,over=50,by=step", eta_schedule="step,every=2")
    arrived = pickle.loads(pickle.dumps(sent))
    assert fingerprint(arrived) is None
    np.testing.assert_array_equal(run(federation, arrived), run(federation, sent))


def test_plain_sgd_stays_on_the_fast_path() -> None:
    assert with_optimiser(fedavg(0.1), "sgd").sgd_rate == 0.1
    assert with_schedules(fedavg(0.1), "constant").sgd_rate == 0.1
    scheduled = with_schedules(fedavg(0.1), "step,every=1,factor=0.5")
    assert scheduled.fused_rate({"clock.round": torch.tensor([2.0])}) == pytest.approx(0.025)
    assert with_optimiser(fedavg(0.1), "sgd", local_momentum=0.9).fused_rate({}) is None
