"""Laws that every registered kernel obeys: it agrees with the plain one on every model that it accepts."""

from __future__ import annotations

import logging
import pickle
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import chains, convolutions, data, federation
from torch import nn
from torch.nn import functional

from fedgauge import fedavg, simulate
from fedgauge.base.errors import InputError
from fedgauge.federation import kernels
from fedgauge.federation.flat import FlatModule, flatten
from fedgauge.federation.kernels import KERNELS, Kernel, Learner
from fedgauge.federation.kernels.autograd import Autograd
from fedgauge.federation.kernels.base import squared_error
from fedgauge.federation.kernels.convolutional import Convolutional
from fedgauge.simulation.options import Compute

pytestmark = pytest.mark.usefixtures("one_thread")
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.name for kernel in KERNELS])
DOUBLE = torch.float64


def learner(module: nn.Module, shape: tuple[int, ...], outputs: int, loss: Any, values: bool = False) -> Learner:
    """A learner in float64, where paths differ by rounding alone: a ReLU near zero would turn 1e-7 into a branch."""
    module = module.to(DOUBLE)
    x, y = data(24, *shape, classes=outputs, dtype=DOUBLE)
    if values and loss is squared_error:
        y = torch.randn(24, outputs, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    return Learner(module, loss, flatten(module), x, y)


@st.composite
def learners(draw: st.DrawFn) -> Learner:
    """Learners of every family that some kernel is written for, and one that none but the plain one accepts."""
    loss, values = draw(st.sampled_from([functional.cross_entropy, squared_error])), draw(st.booleans())
    family = draw(st.sampled_from(["dense", "convolutional", "other"]))
    if family == "dense":
        module, inputs, outputs = draw(chains())
        return learner(module, (inputs,), outputs, loss, values)
    if family == "convolutional":
        return learner(draw(convolutions()), (2, 9, 9), 3, loss, values)
    torch.manual_seed(draw(st.integers(0, 9)))
    return learner(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), (6,), 3, loss, values)


def check(found: Kernel, of: Learner) -> None:
    """Every operation of a kernel agrees with the plain one's."""
    plain, generator = Autograd(FlatModule(of.module), of.loss), torch.Generator().manual_seed(5)
    models, vectors = (
        of.model + 0.1 * torch.randn(3, len(of.model), dtype=DOUBLE, generator=generator) for _ in range(2)
    )
    draws = list(torch.randint(len(of.inputs), (12, 3, 4), generator=generator))
    x, y = of.inputs[draws[0]], of.targets[draws[0]]
    before = models.clone()
    for operation, arguments in {
        "losses": (models, x, y),
        "gradients": (models, x, y),
        "evaluate": (models, x, y),
        "sample_squares": (models, x, y),
        "hessian_products": (models, vectors, x, y),
        "descend": (models, draws, of.inputs.__getitem__, of.targets.__getitem__, 0.01, 0.999),
    }.items():
        answer, expected = (getattr(each, operation)(*arguments) for each in (found, plain))
        torch.testing.assert_close(answer, expected, rtol=1e-8, atol=1e-10, msg=f"{operation}: {{}}".format)
    assert torch.equal(models, before), "no operation changes its arguments"
    assert found.rows >= 1
    assert found.samples >= 1


@every_kernel
@settings(max_examples=25, deadline=None)
@given(of=learners())
def test_a_kernel_agrees_with_the_plain_one_on_what_it_accepts(kernel: type[Kernel], of: Learner) -> None:
    found = kernel.of(of)
    if found is not None:
        check(found, of)


def example(kernel: type[Kernel], loss: Any = functional.cross_entropy, values: bool = False) -> Learner:
    """The kernel's own example."""
    torch.manual_seed(0)
    module, shape = kernel.example()
    return learner(module, shape, 3, loss, values)


@every_kernel
@pytest.mark.parametrize(
    ("loss", "values"), [(functional.cross_entropy, False), (squared_error, False), (squared_error, True)]
)
def test_a_kernel_agrees_with_the_plain_one_on_its_own_example(kernel: type[Kernel], loss: Any, values: bool) -> None:
    of = example(kernel, loss, values)
    found = kernel.of(of)
    if found is None:
        assert loss is squared_error, "an example is served under cross-entropy at least"
    else:
        check(found, of)


def test_a_convolution_may_differ_in_every_direction() -> None:
    torch.manual_seed(0)
    uneven = nn.Conv2d(2, 4, (2, 3), stride=(1, 2), padding=(1, 0), dilation=(2, 1))
    of = learner(
        nn.Sequential(uneven, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 5 * 3, 3)), (2, 5, 7), 3, functional.cross_entropy
    )
    found = Convolutional.of(of)
    assert found is not None
    check(found, of)


@every_kernel
def test_every_kernel_accepts_a_model_is_chosen_for_it_and_is_shown(
    kernel: type[Kernel], caplog: pytest.LogCaptureFixture
) -> None:
    of = example(kernel)
    found = kernel.of(of)
    assert found is not None
    assert type(kernels.choose(of)) is kernel
    assert type(kernels.choose(of, kernel.name)) is kernel
    caplog.set_level(logging.INFO, "fedgauge")
    made = federation(of.module, x=of.inputs, y=of.targets, workers=3, samples=24)
    assert made.path == kernel.name
    assert f"path {kernel.name}: {found.summary}" in caplog.messages


@every_kernel
def test_soft_targets_go_the_plain_way_only(kernel: type[Kernel]) -> None:
    of = example(kernel)
    soft = of._replace(targets=torch.full((24, 3), 1 / 3, dtype=DOUBLE))
    assert (kernel.of(soft) is not None) == (kernel is Autograd)


def test_names_differ_and_the_last_kernel_serves_everything() -> None:
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)
    for kernel in KERNELS:
        assert KERNELS[-1].of(example(kernel)) is not None


class Tanh:
    """A made-up fast path: one Linear layer followed by Tanh, by autograd and counted."""

    name: ClassVar[str] = "tanh"
    needs: ClassVar[str] = "a Linear followed by Tanh"
    summary = "made up for a test"
    rows, samples = 3, 5
    steps: ClassVar[int] = 0

    def __init__(self, plain: Autograd) -> None:
        self._plain = plain
        for operation in ("losses", "gradients", "evaluate", "sample_squares", "hessian_products"):
            setattr(self, operation, getattr(plain, operation))

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        parts = list(learner.module) if isinstance(learner.module, nn.Sequential) else []
        if [type(part) for part in parts] != [nn.Linear, nn.Tanh]:
            return None
        return cls(Autograd(FlatModule(learner.module), learner.loss))

    def descend(self, models: torch.Tensor, draws: Any, *how: Any) -> torch.Tensor:
        type(self).steps += len(draws) * len(models)
        return self._plain.descend(models, draws, *how)


def test_a_new_kernel_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    before = simulate(federation(module), fedavg(0.1), local_steps=3, rounds=2, compute=Compute(chunk=3, processes=1))
    monkeypatch.setattr(kernels, "KERNELS", (Tanh, *KERNELS))
    of = federation(module)
    assert of.path == "tanh"
    assert of.chunk(100) == 3
    assert federation().path == "dense", "others are as they were"
    after = simulate(of, fedavg(0.1), local_steps=3, rounds=2, compute=Compute(chunk=3, processes=1))
    assert Tanh.steps == 3 * 2 * 5
    np.testing.assert_array_equal(after.model, before.model)
    with pytest.raises(InputError, match="path tanh needs a Linear followed by Tanh"):
        federation(path="tanh")


@every_kernel
def test_a_kernel_goes_to_another_process(kernel: type[Kernel]) -> None:
    of = example(kernel)
    sent = federation(of.module, x=of.inputs, y=of.targets, workers=3, samples=24, path=kernel.name)
    found = pickle.loads(pickle.dumps(sent))
    everyone = np.arange(3)
    rows = sent.start(0).expand(3, -1)
    assert torch.equal(found.gradients(rows, everyone), sent.gradients(rows, everyone))
