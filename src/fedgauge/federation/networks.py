"""The modules of the models that are more than a sequence of layers: a residual network and a transformer."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm beside a shortcut without parameters.

    Where a block halves the sides and adds channels, the shortcut takes every second pixel and fills the new channels
    with zeros.
    """

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, after)
        self._stride, self._added = stride, after - before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of (batch, channels, height, width)."""
        y = functional.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        if self._stride > 1:
            x = x[:, :, :: self._stride, :: self._stride]
        if self._added:
            x = functional.pad(x, (0, 0, 0, 0, 0, self._added))
        return functional.relu(y + x)


class ResNet20(nn.Module):
    """Three stages of three blocks, of ``width``, twice and four times as many channels, then the mean of the pixels.

    Convolutions are drawn as He et al. (2015) draw them for ReLU.
    """

    def __init__(self, channels: int, classes: int, width: int, groups: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stem_norm = nn.GroupNorm(groups, width)
        blocks, before = [], width
        for stage in range(3):
            after = width * 2**stage
            for place in range(3):
                blocks.append(Block(before, after, 2 if stage > 0 and place == 0 else 1, groups))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of (batch, channels, height, width) to (batch, classes)."""
        x = functional.relu(self.stem_norm(self.stem(x)))
        return self.head(self.blocks(x).mean(dim=(2, 3)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Several heads of attention in which every place sees itself and the places before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ask, self.answer, self._heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) to the same."""
        batch, time, width = x.shape
        parts = self.ask(x).view(batch, time, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.answer(seen.transpose(1, 2).reshape(batch, time, width))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention, then a dense network at every place, each added to what it normalises."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.dense_norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) to the same."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.dense(self.dense_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A decoder-only transformer: at every place, the outputs for the token that comes next.

    All matrices are drawn with the deviation 0.02, those that end a branch with 0.02 / sqrt(2 layers), so that the sum
    over the branches does not grow with their number.
    """

    def __init__(self, tokens: int, time: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(time, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                ends = name.endswith(("attention.answer.weight", "dense.2.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if ends else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens of (batch, time) to (batch, time, tokens)."""
        return self.head(self.norm(self.layers(self.token(x) + self.place.weight[: x.shape[1]])))  # type: ignore[no-any-return]
