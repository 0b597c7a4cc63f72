"""The work of one sample, counted and not timed: the same number on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def forward_work(module: nn.Module, call: Callable[[], Any], samples: int) -> int:
    """About how many products of two numbers one sample's forward pass takes; at least one per parameter.

    A layer multiplies its weights with its inputs once for every place of its output: a pixel, a token. What layers do
    not multiply by weights, such as attention between tokens, is left out.

    Args:
        module: whose layers are counted.
        call: calls it once.
        samples: the number of samples in that call.

    >>> linear, images = nn.Linear(3, 2), nn.Conv2d(1, 4, 3, padding=1)
    >>> forward_work(linear, lambda: linear(torch.zeros(5, 3)), 5)
    8
    >>> forward_work(images, lambda: images(torch.zeros(2, 1, 8, 8)), 2)
    2560
    """
    total = 0

    def count(layer: nn.Module, given: Any, found: Any) -> None:
        nonlocal total
        output = found[0] if isinstance(found, tuple) else found
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
        if isinstance(output, torch.Tensor) and own:
            if isinstance(layer, nn.Embedding):
                total += output.numel()  # looks rows up
            else:
                features = output.shape[1 if isinstance(layer, nn.modules.conv._ConvNd) else -1]
                total += own * (output.numel() // max(features, 1))

    hooks = [part.register_forward_hook(count) for part in module.modules()]
    try:
        with torch.no_grad():
            call()
    finally:
        for hook in hooks:
            hook.remove()
    return max(total // samples, sum(parameter.numel() for parameter in module.parameters()))
