"""Small supervised federations for tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedgauge.federation.supervised import SupervisedFederation


def mlp(inputs: int = 6, width: int = 5, classes: int = 3, dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, classes)).to(dtype)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )


def chained() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3)),
    )


def data(
    samples: int, *shape: int, classes: int = 3, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(classes, (samples,), generator=generator)


def ragged(samples: int, workers: int) -> list[Any]:
    """Shards of unequal sizes that cover the samples."""
    ends = [round(samples * (i / workers) ** 1.5) for i in range(workers + 1)]
    return [range(first, max(last, first + 1)) for first, last in pairwise(ends)]


def federation(
    module: Any = None, *, workers: int = 5, samples: int = 60, shape: tuple[int, ...] = (6,), **how: Any
) -> SupervisedFederation:
    torch.manual_seed(0)
    x, y = data(samples, *shape, dtype=how.pop("dtype", torch.float32))
    loss, shards = how.pop("loss", functional.cross_entropy), how.pop("shards", ragged(samples, workers))
    return SupervisedFederation(
        module or mlp(), loss, how.pop("x", x), how.pop("y", y), shards, **{"batch_size": 4, **how}
    )


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, int, int]:
    """Chains of Linear and ReLU of any widths, with their inputs and outputs."""
    torch.manual_seed(draw(st.integers(0, 9)))
    widths = draw(st.lists(st.integers(1, 7), min_size=2, max_size=4))
    parts: list[nn.Module] = [nn.Flatten()] if draw(st.booleans()) else []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after, bias=draw(st.booleans())), *([nn.ReLU()] if draw(st.booleans()) else [])]
    if isinstance(parts[-1], nn.ReLU):
        parts.pop()
    return nn.Sequential(*parts), widths[0], widths[-1]


@st.composite
def convolutions(draw: st.DrawFn) -> nn.Module:
    """Chains that take images of 2 x 9 x 9 and give 3 outputs; with few or many pixels, gradients go different ways."""
    torch.manual_seed(draw(st.integers(0, 9)))  # the weights belong to the example
    parts: list[nn.Module] = []
    channels, side = 2, 9
    for _ in range(draw(st.integers(1, 3))):
        after, groups = draw(st.sampled_from([(2, 1), (3, 1), (4, channels if channels in (2, 4) else 1)]))
        how: dict[str, Any] = {
            "padding": draw(st.integers(0, 1)),
            "stride": draw(st.integers(1, 2)),
            "dilation": draw(st.integers(1, 2)),
            "bias": draw(st.booleans()),
        }
        reach = 2 * how["dilation"] + 1
        if side + 2 * how["padding"] < reach:
            break
        parts.append(nn.Conv2d(channels, after, 3, groups=groups, **how))
        channels, side = after, (side + 2 * how["padding"] - reach) // how["stride"] + 1
        parts += [nn.ReLU()] * draw(st.integers(0, 1))
        if side >= 2 and draw(st.booleans()):
            stride = draw(st.integers(1, 2))
            parts.append(nn.MaxPool2d(2, stride))
            side = (side - 2) // stride + 1
        parts += [nn.ReLU()] * draw(st.integers(0, 1))
    parts.append(nn.Flatten())
    width = channels * side * side
    if draw(st.booleans()):
        parts += [nn.Linear(width, 4, bias=draw(st.booleans())), nn.ReLU()]
        width = 4
    return nn.Sequential(*parts, nn.Linear(width, 3))
