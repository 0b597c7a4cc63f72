"""Modules that compute something else than the types of their layers say: no written-out path takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from fedgauge import SupervisedFederation, fedavg, simulate
from fedgauge.base.errors import InputError
from fedgauge_verification import certify


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def _parametrized(module: nn.Sequential) -> None:
    parametrize.register_parametrization(module[0], "weight", Doubled())


def _own_forward(module: nn.Sequential) -> None:
    linear: Any = module[0]
    linear.forward = lambda x: 3 * nn.functional.linear(x, linear.weight, linear.bias)


HOOKS: dict[str, Callable[[nn.Sequential], Any]] = {
    "forward": lambda module: module[0].register_forward_hook(lambda layer, given, out: 3 * out),
    "forward of the whole": lambda module: module.register_forward_hook(lambda layer, given, out: 3 * out),
    "before forward": lambda module: module[0].register_forward_pre_hook(lambda layer, given: (3 * given[0],)),
    "parametrization": _parametrized,
    "own forward": _own_forward,
}


def _on_gradients(module: nn.Sequential) -> None:
    def tripled(layer: nn.Module, into: Any, out: Any) -> Any:
        return tuple(None if each is None else 3 * each for each in into)

    module[0].register_full_backward_hook(tripled)


def federation(hook: str | Callable[[nn.Sequential], Any] | None = None, path: str = "auto") -> SupervisedFederation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = torch.arange(12) % 2
    module = nn.Sequential(nn.Linear(3, 2)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1.0, 1.0, parameter.numel()).reshape(parameter.shape))
    if hook:
        (HOOKS[hook] if isinstance(hook, str) else hook)(module)
    shards = [range(6), range(6, 12)]
    return SupervisedFederation(module, nn.functional.cross_entropy, x, y, shards, l2=0.1, path=path)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_module_with_its_hooks_is_what_is_trained(hook: str) -> None:
    made = federation(hook)
    assert made.path == "plain"
    with torch.no_grad():
        outputs = made.module(made.inputs)
    shards = [nn.functional.cross_entropy(outputs[part], made.targets[part]) for part in (slice(0, 6), slice(6, 12))]
    start = made.start(0)
    expected = float(torch.stack(shards).mean()) + 0.05 * float(start @ start)
    trace = simulate(made, fedavg(gamma=0.1), local_steps=2, rounds=1)
    assert float(trace.losses[0]) == pytest.approx(expected, rel=1e-12)
    assert float(trace.losses[0]) != pytest.approx(float(federation().losses(start.expand(2, -1), np.arange(2)).mean()))


@pytest.mark.parametrize("hook", HOOKS)
def test_nothing_is_certified_for_such_a_module(hook: str) -> None:
    words = "one Linear layer" if hook == "parametrization" else "hooks"
    with pytest.raises(InputError, match=words):
        certify(federation(hook))


def test_a_hook_on_gradients_is_found_too() -> None:
    with pytest.raises(InputError, match="hooks"):
        certify(federation(hook=_on_gradients))


def test_the_digest_tells_a_module_with_hooks_from_one_without() -> None:
    assert federation().digest == federation().digest != federation("forward").digest


def test_a_written_out_path_says_why_it_cannot_serve() -> None:
    with pytest.raises(InputError, match=r"^path dense needs a chain .* without hooks\.$"):
        federation("forward", path="dense")


def test_two_layers_with_one_weight_are_not_taken_for_two() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    module = nn.Sequential(first, nn.ReLU(), second)
    x, y = torch.randn(6, 3), torch.arange(6) % 3
    made = SupervisedFederation(module, nn.functional.cross_entropy, x, y, [range(6)])
    assert made.path == "plain"
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(module(x), y))
    assert float(made.losses(made.start(0).expand(1, -1), np.arange(1))[0]) == pytest.approx(expected, rel=1e-6)
