"""What local steps are compared with, and base runs that are no yardstick."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from fedgauge import (
    Algorithm,
    Experiment,
    GaugeOptions,
    QuadraticFederation,
    Recording,
    diloco,
    fedadam,
    fedavg,
    fedavgm,
    federate,
    fedprox,
    gauge,
    random_quadratics,
    scaffold,
    simulate,
    slowmo,
    with_optimiser,
    with_schedules,
)
from fedgauge.algorithms.base import move_by
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge.measurement.gauge.reference import check_base, check_efficiencies, stalled_at
from fedgauge.values.answer import StepEfficiency

QUADRATICS = random_quadratics(4, 3, hessian_spread=0.2, seed=1)


def torch_synchronous(federation: QuadraticFederation, algorithm: Algorithm, steps: int) -> torch.Tensor:
    """Synchronous training by hand, with torch's own optimiser for each worker, whose states are averaged."""
    model = federation.start(0)
    workers = np.arange(federation.num_workers)
    rows = [torch.nn.Parameter(model.clone()) for _ in workers]
    given = algorithm.parameters
    settings = {"betas": (given["local_beta1"], given["local_beta2"]), "eps": given["local_epsilon"]}
    each = [torch.optim.AdamW([row], lr=given["gamma"], weight_decay=given["weight_decay"], **settings) for row in rows]
    for _ in range(steps):
        gradients = federation.gradients(torch.stack([row.detach() for row in rows]), workers)
        for row, gradient, optimiser in zip(rows, gradients, each, strict=True):
            row.grad = gradient.clone()
            optimiser.step()
        with torch.no_grad():
            mean = torch.stack([row.detach() for row in rows]).mean(dim=0)
            for row, optimiser in zip(rows, each, strict=True):
                row.copy_(mean)
                for name in ("exp_avg", "exp_avg_sq"):
                    states = torch.stack([other.state[own][name] for own, other in zip(rows, each, strict=True)])
                    optimiser.state[row][f"mean {name}"] = states.mean(dim=0)
            for row, optimiser in zip(rows, each, strict=True):
                for name in ("exp_avg", "exp_avg_sq"):
                    optimiser.state[row][name] = optimiser.state[row].pop(f"mean {name}").clone()
    return rows[0].detach()


def test_dilocos_reference_is_synchronous_adamw() -> None:
    reference = diloco(gamma=0.05).synchronous
    assert reference is not None
    trace = simulate(QUADRATICS, reference, local_steps=1, rounds=30)
    expected = torch_synchronous(QUADRATICS, reference, 30)
    # torch.optim adds the same numbers in another order.
    np.testing.assert_allclose(trace.model, expected.numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    "algorithm", [fedavgm(0.1, beta=0.5), slowmo(0.1, beta=0.5), fedadam(0.1), fedavgm(0.1, nesterov=True)]
)
def test_other_servers_are_compared_with_plain_averaging(algorithm: Algorithm) -> None:
    assert algorithm.synchronous is not None
    assert algorithm.synchronous.parameters == {"gamma": 0.1, "eta": 1.0}
    found = gauge(QUADRATICS, algorithm, options=GaugeOptions(steps=60, local_steps=[4]))
    plain = gauge(QUADRATICS, fedavg(0.1), options=GaugeOptions(steps=60, local_steps=[4]))
    assert found.losses[0] == plain.losses[0]
    assert found.losses[-1] < plain.losses[0]
    assert found.base == {"name": "fedavg", "gamma": 0.1, "eta": 1.0}
    assert "Compared with synchronous training" in found.compared_with


def test_the_efficiency_of_another_server_is_that_of_its_own_whole_run() -> None:
    algorithm = fedavgm(0.02, eta=0.5, beta=0.3)
    found = gauge(QUADRATICS, algorithm, options=GaugeOptions(steps=400, local_steps=[8], budget=4000))
    trace = simulate(QUADRATICS, algorithm, local_steps=8, rounds=400, record=Recording(watch=False))
    reached = int(np.argmax(trace.losses <= found.goal))
    (each,) = found.efficiency[1:]
    # Between two rounds nobody knows f, so that the truth is one of the eight steps before.
    assert not each.limit
    assert 400 / (8 * reached) <= each.value <= 400 / (8 * (reached - 1))


@pytest.mark.parametrize("algorithm", [fedavg(0.1, eta=0.5), scaffold(0.1), fedprox(0.1, 0.1)])
def test_where_the_server_averages_the_reference_is_the_algorithm_itself(algorithm: Algorithm) -> None:
    assert algorithm.synchronous is None
    found = gauge(QUADRATICS, algorithm, options=GaugeOptions(steps=60, local_steps=[4]))
    assert found.base is None
    assert found.compared_with == "Compared with the same algorithm at one local step per round."


def test_an_optimiser_that_forgets_is_compared_with_one_that_does_not() -> None:
    forgets = with_optimiser(fedavg(0.01), "adamw")
    found = gauge(QUADRATICS, forgets, options=GaugeOptions(steps=80, local_steps=[4]))
    assert found.base is not None
    assert found.base["optimiser_state"] == "averaged"
    assert "AdamW with averaged state" in found.compared_with


def test_schedules_hold_for_the_reference_too() -> None:
    scheduled = with_schedules(diloco(0.05), "linear,by=step,over=100", "constant")
    assert scheduled.synchronous is not None
    assert scheduled.synchronous.parameters["gamma_schedule"] == "linear,by=step,over=100"


def test_the_user_names_another_reference() -> None:
    found = gauge(QUADRATICS, fedavgm(0.1), reference=fedavg(0.3), options=GaugeOptions(steps=40, local_steps=[4]))
    assert found.base == {"name": "fedavg", "gamma": 0.3, "eta": 1.0}
    assert "at gamma 0.3" in found.compared_with


def test_a_server_of_the_users_own_is_said_to_be_its_own_reference() -> None:
    own = dataclasses.replace(fedavgm(0.05, beta=0.5), name="mine:server", synchronous=None)
    found = gauge(QUADRATICS, own, options=GaugeOptions(steps=60, local_steps=[4]))
    assert "name another reference" in found.notes[0]


# -- base runs that are no yardstick -------------------------------------------------------------------------------


def noisy(levels: Any, noise: float, seed: int = 0) -> BaseCurve:
    levels = np.asarray(levels, dtype=float)
    scatter = noise * np.random.default_rng(seed).standard_normal(len(levels))
    return BaseCurve(range(len(levels)), (levels + scatter).tolist())


def test_a_base_run_that_rises_is_refused() -> None:
    down, up = np.linspace(3, 1, 60), np.linspace(1, 2, 40)
    with pytest.raises(InputError, match="f rises again with one local step per round"):
        check_base(noisy([*down, *up], 0.01), None)
    assert check_base(noisy([*down, *np.linspace(1, 0.9, 40)], 0.01), None) < 1


def test_a_base_run_that_stalls_at_once_is_refused() -> None:
    with pytest.raises(InputError, match=r"has stalled: after \d of 99 steps"):
        stalled_at(noisy([3, 2, 1.1, *np.full(97, 1.0)], 0.05))
    # Without noise every fall tells, however small; and of a few records nobody can tell.
    assert stalled_at(BaseCurve(range(100), [0.9**step for step in range(100)])) is None
    assert stalled_at(noisy([3, 2, 1, 1, 1, 1, 1, 1], 0.05)) is None


def test_the_way_ends_where_the_base_run_stalls_later() -> None:
    """With noise there is a level below which f does not get: the steps there tell nothing about local steps."""
    federation = QuadraticFederation([[[0.9]], [[1.1]]], [[1.0], [-1.0]], sigma2=1.0, start=[1e4])
    found = gauge(federation, fedavg(0.02), options=GaugeOptions(steps=2000, local_steps=[4]))
    note = next(note for note in found.notes if "falls by less than its noise" in note)
    assert 400 < int(note.split()[1]) < 1000
    assert found.spent.gradient_steps == 2000
    assert found.efficiency[1].value == pytest.approx(1.0, abs=0.3)


def test_a_base_run_that_is_far_slower_is_refused_with_the_reason() -> None:
    """With so small a gamma, the server's momentum of 0.9 takes the model ten times as far as averaging does."""
    slow = random_quadratics(4, 3, hessian_spread=0.0)
    with pytest.raises(
        InputError, match="too slow to compare with; the server of fedavgm moves the model much further"
    ):
        gauge(slow, fedavgm(0.0002), options=GaugeOptions(steps=600, local_steps=[4]))
    found = gauge(slow, fedavgm(0.0002), reference=fedavg(0.002), options=GaugeOptions(steps=600, local_steps=[4]))
    assert found.efficiency[1].value == pytest.approx(1.0, abs=0.2)


def test_efficiencies_above_one_are_explained_or_refused() -> None:
    plain, server = fedavg(0.1), fedavgm(0.1)
    assert check_efficiencies([StepEfficiency(4, 1.01, 0.9, 1.1)], plain, plain) == []
    (why,) = check_efficiencies([StepEfficiency(4, 1.2, 1.1, 1.3)], plain, plain)
    assert "1.2 times as far as in the base run" in why
    with pytest.raises(InputError, match="too slow to compare with; give it more steps, or choose another gamma"):
        check_efficiencies([StepEfficiency(4, 2.0, 1.8, 2.2)], plain, plain)
    assert check_efficiencies([StepEfficiency(4, 2.0, 1.8, 2.2)], server, plain)


def test_no_share_is_ever_above_all() -> None:
    """On data without heterogeneity, noise puts some efficiencies above 1; nobody reads that 101% of them count."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(240, 6, generator=generator)
    shards = [(inputs[k::4], (inputs[k::4, 0] > 0).long()) for k in range(4)]
    federation = federate(lambda: torch.nn.Linear(6, 2), torch.nn.functional.cross_entropy, shards)
    for seed in range(2):
        found = gauge(federation, fedavg(0.1), options=GaugeOptions(steps=60, local_steps=[2, 4, 8]), seed=seed)
        shown = " ".join([found.sentence, *(each.share + each.interval for each in found.efficiency)])
        assert not any(f"{share}%" in shown for share in range(101, 200))


def test_a_run_that_passes_the_goal_in_its_first_round_gets_no_number() -> None:
    """A way of six steps says nothing about rounds of 16 steps, but that they are not slower than that."""
    found = gauge(
        random_quadratics(4, 3, hessian_spread=0.0),
        fedavg(0.05),
        options=GaugeOptions(steps=6, local_steps=[16], budget=64),
    )
    (each,) = found.efficiency[1:]
    assert each.interval == "38% to 100%"


def test_diloco_on_text_is_compared_with_adamw() -> None:
    """By diloco's own single steps, 16 local steps had an efficiency of 1000% late in training."""
    experiment = Experiment.of(
        {"source": "text", "scheme": "id", "workers": 4, "model": "transformer", "algorithm": "diloco", "gamma": 0.003}
    )
    options = GaugeOptions(steps=24, local_steps=(12,), budget=24, sample=8)
    found = gauge(experiment, options=options)
    assert found.base is not None
    assert found.base["optimiser"] == "adamw"
    (each,) = found.efficiency[1:]
    assert not each.limit
    assert 0.3 < each.value < 1.1


def test_move_by_is_all_that_an_averaging_server_does() -> None:
    """The reference's server replaces the model by the average."""
    reference = fedadam(0.1).synchronous
    assert reference is not None
    model, mean = torch.ones(3), {"change": torch.full((3,), 0.25)}
    assert torch.equal(reference.update(model, {}, mean, 1.0)[0], move_by(1.0)(model, {}, mean, 1.0)[0])
