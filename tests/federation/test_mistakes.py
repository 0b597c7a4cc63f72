"""What a new user hands over for a federation, a model or an option is taken as it is meant, or gets one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedgauge as fg
import fedgauge_planning as fp
from fedgauge import InputError
from fedgauge.simulation.runs.checkpoints import given_model

CROSS_ENTROPY = functional.cross_entropy
QUADRATIC = fg.random_quadratics(4, 3, sigma2=0.1, seed=1)
PLAIN = fg.fedavg(gamma=0.1)
COST = fg.Cost("given", fixed=1.0, step=0.1)


def _linear() -> nn.Module:
    return nn.Linear(3, 2)


def _shards(workers: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    return [(torch.randn(8, 3, generator=draw), torch.arange(8) % 2) for _ in range(workers)]


def _with_inputs(change: Callable[[torch.Tensor], Any]) -> Any:
    return fg.federate(_linear, CROSS_ENTROPY, [(change(x), y) for x, y in _shards()])


def _regression(change: Callable[[torch.Tensor], Any], loss: Any = functional.mse_loss) -> Any:
    return fg.federate(_linear, loss, [(x, change(torch.randn(8, 2))) for x, _ in _shards()])


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: int) -> Any:
        return self._items[place]


class Detached(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).detach()


class Spoilt(nn.Linear):
    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, float("nan"))


def _hole(targets: torch.Tensor) -> torch.Tensor:
    targets[5, 1] = float("nan")
    return targets


def _simulated(of: Any = QUADRATIC, algorithm: Any = PLAIN, **how: Any) -> Any:
    return fg.simulate(of, algorithm, local_steps=2, rounds=2, **how)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a lazy layer": (
        lambda: fg.federate(lambda: nn.LazyLinear(2), CROSS_ENTROPY, _shards()),
        "The size of the model's parameter weight is not known .*; call it with an example",
    ),
    "a complex model": (
        lambda: fg.federate(lambda: nn.Linear(3, 2, dtype=torch.complex64), CROSS_ENTROPY, _shards()),
        "must be real numbers, but weight is complex",
    ),
    "a model without values": (
        lambda: fg.federate(lambda: nn.Linear(3, 2, device="meta"), CROSS_ENTROPY, _shards()),
        "parameter weight has no values",
    ),
    "a class that takes arguments": (
        lambda: fg.federate(nn.Linear, CROSS_ENTROPY, _shards()),  # type: ignore[arg-type]
        r"Linear cannot be called so .*; wrap it, as in lambda: Linear\(\.\.\.\)",
    ),
    "a model's name": (
        lambda: fg.federate("mlp", CROSS_ENTROPY, _shards()),  # type: ignore[arg-type]
        "not the text 'mlp'; to make a model of fedgauge by its name, pass make_model",
    ),
    "a module for a name": (
        lambda: fg.make_model(_linear(), (3,), 2),  # type: ignore[arg-type]
        "A model's name must be text, not a Linear",
    ),
    "sparse inputs": (lambda: _with_inputs(torch.Tensor.to_sparse), r"inputs of worker 0 .* sparse; call to_dense"),
    "complex inputs": (lambda: _with_inputs(lambda x: x.to(torch.complex64)), "inputs of worker 0 .* is complex"),
    "meta inputs": (lambda: _with_inputs(lambda x: x.to("meta")), "inputs of worker 0 .* without values"),
    "sparse targets": (lambda: _regression(torch.Tensor.to_sparse), "targets of worker 0 .* sparse; call to_dense"),
    "complex targets": (lambda: _regression(lambda y: y.to(torch.complex64)), "targets of worker 0 .* is complex"),
    "sparse data of a federation": (
        lambda: fg.SupervisedFederation(
            _linear, CROSS_ENTROPY, torch.eye(4, 3).to_sparse(), torch.arange(4) % 2, [[0]]
        ),
        "^inputs must be a dense tensor of real numbers, not one that is sparse",
    ),
    "a target that is not a number": (
        lambda: _regression(_hole),
        "targets must be finite, but 3 of 24 samples have NaN or infinity, the first of them number 5",
    ),
    "an infinite target": (
        lambda: _regression(lambda y: y / 0.0),
        "targets must be finite, but 24 of 24 samples",
    ),
    "a lazily read input that is not a number": (
        lambda: fg.federate(
            _linear, CROSS_ENTROPY, [Items([(torch.full((3,), value), 1)] * 4) for value in (1.0, float("nan"))]
        ),
        "inputs must be finite, but among samples of worker",
    ),
    "items that do not fit together": (
        lambda: fg.federate(_linear, CROSS_ENTROPY, [Items([(torch.ones(3 + i), 1) for i in range(4)])] * 2),
        "of worker 0 do not fit into one batch .*; give its DataLoader a collate_fn",
    ),
    "a detached loss": (
        lambda: fg.federate(_linear, lambda out, y: CROSS_ENTROPY(out, y).detach(), _shards()),
        r"The loss has no gradient .*; leave out detach\(\)",
    ),
    "a loss of nothing": (
        lambda: fg.federate(_linear, lambda out, y: torch.zeros((), requires_grad=True), _shards()),
        "The loss has no gradient",
    ),
    "a detached forward": (lambda: fg.federate(lambda: Detached(3, 2), CROSS_ENTROPY, _shards()), "no gradient"),
    "a first model that is not a number": (
        lambda: fg.federate(lambda: Spoilt(3, 2), CROSS_ENTROPY, _shards()),
        "The loss of the first model on a few samples is nan",
    ),
    "the class of a loss": (
        lambda: fg.federate(_linear, nn.CrossEntropyLoss, _shards()),  # type: ignore[arg-type]
        r"not the class CrossEntropyLoss; make one of it, as in CrossEntropyLoss\(\)",
    ),
    "no federation": (lambda: _simulated(_shards()), "The federation must be one that federate.* not a list"),
    "no algorithm": (lambda: _simulated(algorithm="fedavg"), "The algorithm must be one that .* the text 'fedavg'"),
    "a function for an algorithm": (lambda: _simulated(algorithm=fg.fedavg), "not the function fedavg itself"),
    "a number for compute": (lambda: _simulated(compute=2), r"as in compute=Compute\(processes=2\), not 2"),
    "a number for stop": (lambda: _simulated(stop=0.1), r"as in stop=StopAt\(loss=0.1\), not 0.1"),
    "a share of participants": (lambda: _simulated(participation=0.5), "or a number of participants, not 0.5"),
    "too many participants": (lambda: _simulated(participation=9), "participants must be at most 4"),
    "no participants": (lambda: _simulated(participation=0), "participation must be a whole number of at least 1"),
    "a goal that is a number": (
        lambda: fp.plan(QUADRATIC, PLAIN, goal=0.5, cost=COST),  # type: ignore[arg-type]
        "goal must be a Goal, or text such as 'loss=0.1', not 0.5",
    ),
    "a goal that is misspelt": (lambda: fp.plan(QUADRATIC, PLAIN, goal="los=1", cost=COST), "did you mean loss"),
    "a cost that is a number": (
        lambda: fp.plan(QUADRATIC, PLAIN, goal="loss=1", cost=3.0),  # type: ignore[arg-type]
        "cost must be a Cost, or text such as 'cross-device'",
    ),
    "a cost that is misspelt": (lambda: fp.plan(QUADRATIC, PLAIN, goal="loss=1", cost="cross-devise"), "did you mean"),
    "a cost of a name alone": (lambda: fg.Cost("cross-device"), "would cost nothing; write cost='cross-device'"),
    "options as a dict": (
        lambda: fp.plan(QUADRATIC, PLAIN, goal="loss=1", cost=COST, options={}),  # type: ignore[arg-type]
        "options must be PlanOptions",
    ),
    "an unknown field": (lambda: fp.plan(QUADRATIC, PLAIN, goal="loss=1", cost=COST, setup={"steps": 3}), "'steps'"),
    "the rate of an optimiser": (lambda: fg.with_optimiser(PLAIN, lr=0.1), r"gamma; give it there, as in fedavg"),
    "a parameter twice": (
        lambda: fg.with_optimiser(PLAIN, momentum=0.9, local_momentum=0.9),
        "momentum and local_momentum are the same parameter",
    ),
    "betas that are no pair": (lambda: fg.with_optimiser(PLAIN, "adamw", betas=0.9), "betas must be a pair of numbers"),
    "lr of an algorithm": (lambda: fg.make_algorithm("fedavg", lr=0.1), "the local learning rate is gamma"),
    "a model of another kind": (
        lambda: fg.measure(QUADRATIC, PLAIN, model=3),  # type: ignore[arg-type]
        "The model must be a flat tensor, a module, its state_dict or the name of a file or run, not of type int",
    ),
    "a module for a quadratic": (lambda: fg.measure(QUADRATIC, PLAIN, model=_linear()), "for a federation without a"),
    "another module": (
        lambda: _simulated(fg.federate(_linear, CROSS_ENTROPY, _shards()), start=nn.Linear(4, 2)),
        r"The module: weight has the shape \(2, 4\), but the model's has \(2, 3\)",
    ),
    "a run that is not there": (lambda: fg.measure(QUADRATIC, PLAIN, model="runs/none"), "Cannot read runs/none"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_sentence(name: str) -> None:
    call, sentence = MISTAKES[name]
    with pytest.raises(InputError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_loss_may_leave_out_targets_that_are_missing() -> None:
    def masked(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        known = ~torch.isnan(y)
        return (out[known] - y[known]).square().mean()

    trace = _simulated(_regression(_hole, masked))
    assert np.isfinite(trace.losses).all()


def test_inputs_that_ask_for_gradients_are_taken_as_data() -> None:
    plain, asking = (fg.federate(_linear, CROSS_ENTROPY, _shards()), _with_inputs(lambda x: x.requires_grad_()))
    assert _simulated(plain).losses.tolist() == _simulated(asking).losses.tolist()


def test_texts_and_numbers_are_taken_for_goals_costs_and_participation() -> None:
    how: dict[str, Any] = {"over": {"gamma": [0.1], "local_steps": [4]}, "options": fp.PlanOptions(jobs=1)}
    named = fp.plan(QUADRATIC, PLAIN, goal="grad2=0.5", cost="cross-silo", **how)
    made = fp.plan(QUADRATIC, PLAIN, goal=fp.Goal("grad2", 0.5), cost=fg.Cost.parse("cross-silo"), **how)
    assert (named.scale.goal, named.cost, named.rounds) == (made.scale.goal, made.cost, made.rounds)
    assert fg.adaptive_pace("cross-silo", QUADRATIC) == fg.adaptive_pace(fg.Cost.parse("cross-silo"), QUADRATIC)
    two = fg.Participation("with-replacement", 2)
    assert _simulated(participation=2).losses.tolist() == _simulated(participation=two).losses.tolist()
    expected = [fg.expect(QUADRATIC, PLAIN, local_steps=2, rounds=2, participation=who).loss for who in (2, two)]
    assert expected[0] == expected[1]


def test_a_model_is_a_tensor_a_module_a_state_dict_a_file_or_a_run(tmp_path: Path) -> None:
    federation, module = fg.federate(_linear, CROSS_ENTROPY, _shards()), _linear()
    flat = federation.flatten(module)
    torch.save(module.state_dict(), tmp_path / "model.pt")
    forms: list[Any] = [flat, flat.numpy(), module, module.state_dict(), tmp_path / "model.pt"]
    for form in [*forms, str(tmp_path / "model.pt")]:
        assert torch.equal(given_model(federation, form), flat)
        assert _simulated(federation, start=form).losses.tolist() == _simulated(federation, start=flat).losses.tolist()
    trace = _simulated(federation, keep=tmp_path / "run")
    assert torch.equal(given_model(federation, tmp_path / "run"), torch.from_numpy(trace.model))
    options = fg.MeasureOptions(readings=("noise",))
    at = [
        fg.measure(federation, PLAIN, model=form, options=options).constants["sigma"].value for form in (flat, module)
    ]
    assert at[0] == at[1]
    assert fg.evaluate_workers(federation, module).losses == fg.evaluate_workers(federation, flat).losses


def test_torch_names_of_an_optimiser_mean_ours() -> None:
    nesterov = fg.with_optimiser(PLAIN, "SGD", momentum=0.9, nesterov=True, weight_decay=0.1)
    ours = fg.with_optimiser(PLAIN, "sgd", local_momentum=0.9, local_nesterov=True, weight_decay=0.1)
    assert nesterov.parameters == ours.parameters
    adamw = fg.with_optimiser(PLAIN, "AdamW", betas=(0.8, 0.9), eps=1e-7)
    ours = fg.with_optimiser(PLAIN, "adamw", local_beta1=0.8, local_beta2=0.9, local_epsilon=1e-7)
    assert adamw.parameters == ours.parameters
