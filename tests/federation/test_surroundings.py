"""What happens around a federation changes none of its results: threads, later changes, torch's own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from fedgauge import (
    Compute,
    Cost,
    GaugeOptions,
    SupervisedFederation,
    evaluate_workers,
    fedavg,
    federate,
    gauge,
    measure,
    random_quadratics,
    simulate,
)
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.measurement.session import MeasureOptions
from fedgauge_planning import Goal, PlanOptions, plan

pytestmark = pytest.mark.usefixtures("one_thread")
WORKERS = np.arange(2)
HERE = Compute(processes=1)
PATHS = pytest.mark.parametrize("path", ["auto", "plain"])


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(24, 6, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3


def layers(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *more, nn.Linear(5, 3))


def of(module: Any = layers, path: str = "auto", loss: Any = functional.cross_entropy) -> SupervisedFederation:
    x, y = samples()
    return SupervisedFederation(module, loss, x, y, [range(10), range(10, 24)], batch_size=4, path=path)


def trained(federation: SupervisedFederation) -> Any:
    trace = simulate(federation, fedavg(gamma=0.1), local_steps=3, rounds=2, compute=HERE)
    return trace.losses.tolist(), trace.model.tolist(), federation.digest


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [layers, lambda: layers(nn.Dropout(0.3))], ids=["plain", "dropout"])
def test_threads_that_share_a_federation_do_not_disturb_each_other(module: Any) -> None:
    federation = of(module, "plain")
    models = [federation.start(0) * scale for scale in (0.5, 1.0, 1.5, 2.0)]

    def results(model: torch.Tensor) -> Any:
        rows = model.expand(2, -1)
        draws = federation.draws(Streams(0, Purpose.NOISE), 0, WORKERS, np.zeros(2, dtype=np.int64), 2)
        moved = federation.local_sgd(rows, WORKERS, draws, 0.1)
        return federation.losses(rows, WORKERS).tolist(), federation.gradients(rows, WORKERS).tolist(), moved.tolist()

    alone = [results(model) for model in models]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            assert list(pool.map(results, models)) == alone


# -- later changes ---------------------------------------------------------------------------------------------------


def _fill(tensor: Any) -> None:
    with torch.no_grad():
        tensor.fill_(0.5)


def _replaced_forward(module: nn.Sequential) -> None:
    module[0].forward = lambda x: x[:, :5]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "train": lambda module: module.train(),
    "hook": lambda module: module[0].register_forward_hook(lambda layer, given, out: 3 * out),
    "replaced layer": lambda module: module.__setitem__(1, nn.Tanh()),
    "parameter": lambda module: _fill(module[0].weight),
    "data of a parameter": lambda module: module[0].weight.data.zero_(),
    "frozen": lambda module: module[0].requires_grad_(False),
    "hook on a parameter": lambda module: module[0].weight.register_hook(lambda gradient: 0 * gradient),
    "forward": _replaced_forward,
}


@PATHS
@pytest.mark.parametrize("given", ["module", "function that returns it"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_module_after_the_federation_is_made_has_no_effect(change: str, given: str, path: str) -> None:
    mine = layers()
    federation = of(mine if given == "module" else lambda: mine, path)
    expected = trained(of(layers(), path))
    CHANGES[change](mine)
    assert trained(federation) == expected


def test_a_change_of_an_attribute_has_no_effect() -> None:
    mine: Any = layers(nn.Dropout(0.1))
    federation, expected = of(mine), trained(of(layers(nn.Dropout(0.1))))
    mine[2].p = 0.9
    assert trained(federation) == expected


@PATHS
def test_a_change_of_the_federations_module_has_no_effect_either(path: str) -> None:
    federation = of(layers, path)
    expected = trained(federation)
    module: Any = federation.module
    CHANGES["hook"](module)
    _fill(module[0].weight)
    assert trained(federation) == expected


@PATHS
@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_a_change_of_the_data_has_no_effect(kind: str, path: str) -> None:
    x, y = samples()
    given: Any = (x, y) if kind == "tensor" else (x.numpy(), y.numpy())
    shards = [range(10), range(10, 24)]
    federation = SupervisedFederation(
        layers, functional.cross_entropy, given[0], given[1], shards, batch_size=4, path=path
    )
    expected = trained(of(path=path))
    given[0][:] = 0.0
    given[1][:] = 1
    assert trained(federation) == expected


def test_a_change_of_a_loss_that_is_a_module_has_no_effect() -> None:
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]))
    federation = of(loss=loss)
    expected = trained(of(loss=nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]))))
    loss.label_smoothing = 0.9
    assert loss.weight is not None
    loss.weight.zero_()
    assert trained(federation) == expected


class Unique(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("there is one only")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("there is one only")


def test_a_module_that_cannot_be_copied_is_made_again_or_refused() -> None:
    assert trained(of(lambda: Unique(6, 3), "plain"))
    one = Unique(6, 3)
    for model in (one, lambda: one):
        with pytest.raises(InputError, match=r"cannot be copied, .* give a function that makes a new one whenever"):
            of(model)


def test_hooks_on_parameters_are_refused() -> None:
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        module = layers()
        getattr(module[0].weight, register)(lambda gradient: None)
        with pytest.raises(InputError, match=r"^The parameter 0\.weight has a hook, which would not be called"):
            of(module)


@PATHS
def test_hooks_of_all_modules_that_come_later_are_refused(path: str) -> None:
    federation = of(path=path)
    hook = nn.modules.module.register_module_forward_hook(lambda module, given, out: 2 * out)
    try:
        with pytest.raises(InputError, match="hooks that torch calls for all modules have changed"):
            trained(federation)
    finally:
        hook.remove()
    assert trained(federation)


# -- changes in place ------------------------------------------------------------------------------------------------


class Normalising(nn.Module):
    def __init__(self, change: Callable[[torch.Tensor], Any], layer: nn.Module) -> None:
        super().__init__()
        self.change, self.layer = change, layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(x)
        return self.layer(x.flatten(1))  # type: ignore[no-any-return]


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: x.sub_(x.mean(dim=0)),
    "an entry": lambda x: x[0].mul_(2.0),
    "nothing yet": lambda x: x.clamp_(-100, 100),
    "behind torch's back": lambda x: x.data.mul_(2.0),
}


@pytest.mark.parametrize("shape", [(6,), (2, 3, 1), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("change", IN_PLACE)
def test_a_forward_that_changes_its_inputs_in_place_is_refused(change: str, shape: tuple[int, ...]) -> None:
    x, y = samples()
    before = x.clone()
    with pytest.raises(InputError, match=r"^The model changes its inputs in place, and so would change the data"):
        federate(
            lambda: Normalising(IN_PLACE[change], nn.Linear(6, 3)), functional.cross_entropy, [(x.view(24, *shape), y)]
        )
    assert torch.equal(x, before)


def test_an_activation_in_place_is_refused_only_where_it_meets_the_data() -> None:
    assert of(lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(inplace=True), nn.Linear(3, 3)))
    with pytest.raises(InputError, match="inputs in place"):
        of(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)))


def _shifting(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs, targets.sub_(1.0))


def test_a_loss_that_changes_its_targets_in_place_is_refused() -> None:
    x, _ = samples()
    with pytest.raises(InputError, match=r"^The loss changes its targets in place"):
        federate(lambda: nn.Linear(6, 1), _shifting, [(x, x[:, :1].clone())])


class Single(Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> Any:
        return samples()[0][number], int(samples()[1][number])


@pytest.mark.parametrize("lazy", [False, True])
def test_augmentation_in_place_meets_copies(lazy: bool) -> None:
    shards: Any = [Single()] * 2 if lazy else [tuple(part[:1].clone() for part in samples())] * 2
    losses = [
        trained(federate(layers, functional.cross_entropy, shards, batch_size=3, augment=augment))[:2]
        for augment in (lambda x: x.mul_(1.1), lambda x: x * 1.1)
    ]
    assert losses[0] == losses[1]


# -- torch's settings ------------------------------------------------------------------------------------------------

AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def _rows(federation: SupervisedFederation) -> Any:
    model = federation.start(0) + 0.0
    rows, shares = model.expand(2, -1), np.ones(2)
    draws = federation.draws(Streams(0, Purpose.NOISE), 0, WORKERS, np.zeros(2, dtype=np.int64), 2)
    found = [
        *federation.evaluate(rows, WORKERS),
        federation.losses(rows, WORKERS),
        federation.gradients(rows, WORKERS),
        federation.hessian_products(rows, rows, WORKERS),
        federation.pooled(model, WORKERS, shares)[1],
        federation.pooled_hessian(model, model, WORKERS, shares),
        federation.sample_variances(model, WORKERS),
        federation.stochastic_gradients(rows, WORKERS, draws[0]),
        federation.local_sgd(rows, WORKERS, draws, 0.1),
        federation.outputs(model, federation.inputs),
    ]
    loss = federation.pooled_loss(model, WORKERS, shares)
    return [loss, *(part.tolist() for part in found)]


def _measured(federation: SupervisedFederation) -> Any:
    options = MeasureOptions(rounds=1, seeds=1, fall=0.5, most=2, passes=40)
    found = measure(federation, fedavg(0.1), local_steps=2, options=options, compute=HERE)
    return [(name, each.value) for name, each in found.constants.items()]


def _gauged(federation: SupervisedFederation) -> Any:
    found = gauge(federation, fedavg(0.1), options=GaugeOptions(steps=60, local_steps=(4,)), compute=HERE)
    return [(each.local_steps, each.value) for each in found.efficiency]


def _planned(federation: SupervisedFederation) -> Any:
    found = plan(
        federation,
        fedavg(0.1),
        goal=Goal("loss", 1.1),
        cost=Cost("given", fixed=1.0, step=0.1),
        over={"local_steps": [2], "gamma": [0.1]},
        options=PlanOptions(seeds=1, jobs=1),
    )
    return found.experiment, found.rounds, found.seconds


CALLS: dict[str, Callable[[SupervisedFederation], Any]] = {
    "simulate": trained,
    "measure": _measured,
    "gauge": _gauged,
    "plan": _planned,
    "evaluate": lambda federation: evaluate_workers(federation, federation.start(0)).losses,
    "methods": _rows,
}


@cache
def _usual(call: str, path: str) -> Any:
    return CALLS[call](of(path=path))


@PATHS
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("call", CALLS)
def test_torch_contexts_around_a_call_change_nothing(call: str, around: str, path: str) -> None:
    federation, expected = of(path=path), _usual(call, path)
    with AROUND[around]():
        assert CALLS[call](federation) == expected


@PATHS
@pytest.mark.parametrize("around", AROUND)
def test_nor_do_they_where_the_federation_is_made(around: str, path: str) -> None:
    expected = _usual("simulate", path)
    with AROUND[around]():
        federation = of(path=path)
    assert trained(federation) == expected


@pytest.mark.parametrize("around", AROUND)
def test_nor_do_they_around_quadratics(around: str) -> None:
    def run() -> Any:
        quadratics = random_quadratics(4, 3, sigma2=0.1)
        trace = simulate(quadratics, fedavg(0.1), local_steps=3, rounds=3, compute=HERE, start=quadratics.start(1))
        return trace.losses.tolist(), trace.model.tolist()

    expected = run()
    with AROUND[around]():
        assert run() == expected


@contextmanager
def _under(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@PATHS
@pytest.mark.parametrize("call", CALLS)
def test_another_default_number_type_is_refused(call: str, path: str) -> None:
    federation = of(path=path)
    with _under(torch.float64), pytest.raises(InputError, match="is float64, but was float32 when the federation"):
        CALLS[call](federation)


def test_a_federation_of_another_number_type_is_used_under_it() -> None:
    with _under(torch.float64):
        x, y = samples()
        made = federate(layers, functional.cross_entropy, [(x.double(), y)] * 2, batch_size=4)
        assert np.asarray(trained(made)[1]).dtype == np.float64
