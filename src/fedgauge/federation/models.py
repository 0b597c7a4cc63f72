"""The paper's models, two that people train today, and how to use your own.

What the paper leaves open is a named choice here: no BatchNorm in VGG (under it F_i is not a function of the model
alone), one fully connected layer after VGG's convolutions (its form for 32x32 images), VGG's convolutions drawn as He
et al. (2015) draw them, and 64 filters in the CNN's second convolution, which its printed 4096 inputs need.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from fedgauge.base.errors import InputError, count, nearest, non_negative
from fedgauge.base.user_code import error_context, find_user_code
from fedgauge.federation.kernels.base import Loss, squared_error, token_accuracy, token_entropy
from fedgauge.federation.modes import Augment, BatchNorm


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


Accuracy = Callable[[Any, torch.Tensor], Any]
"""The fraction of targets that outputs get right, from (outputs, targets)."""


@dataclass(frozen=True)
class Model:
    """A model and its objective.

    Attributes:
        name: what it is called.
        make: makes a new module, with parameters drawn from torch's generator.
        loss: mean loss from (outputs, targets).
        l2: weight of half the squared norm of the parameters in the objective.
        augment: changes the inputs of a mini-batch at random in local steps, with torch's generator.
        accuracy: the fraction of targets that outputs get right, from (outputs, targets); by default, for one class per
            example, the fraction of examples whose class has the largest output, and otherwise nothing.
        batch_norm: by whose statistics BatchNorm layers normalise: frozen, local or averaged.
    """

    name: str
    make: Callable[[], nn.Module]
    loss: Loss
    l2: float = 0.0
    augment: Augment | None = None
    accuracy: Accuracy | None = None
    batch_norm: BatchNorm = "frozen"


def mlp(shape: Sequence[int], classes: int, *, width: int = 100) -> Model:
    """One hidden layer of ``width`` with ReLU, cross-entropy: the paper's MLP.

    >>> sum(p.numel() for p in mlp((28, 28), 10).make().parameters())
    79510
    """
    inputs = math.prod(shape)
    count("width", width)

    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, classes))

    return Model("mlp", make, functional.cross_entropy)


def linear(shape: Sequence[int], classes: int) -> Model:
    """Linear regression onto the classes' unit vectors with squared error: a quadratic federation on real data."""
    return Model("linear", lambda: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes)), squared_error)


def softmax(shape: Sequence[int], classes: int, *, l2: float = 1e-3) -> Model:
    """Softmax regression with an L2 term: strongly convex, so that every assumption of the theory holds globally."""
    make = linear(shape, classes).make
    return Model("softmax", make, functional.cross_entropy, non_negative("l2", l2))


def cnn(shape: Sequence[int], classes: int, *, filters: int = 64) -> Model:
    """Two 5x5 convolutions (32 and ``filters``) with 2x2 max pools, then dense layers of 512 and 128.

    On 32x32 images ``filters`` = 64 gives the 4096 inputs that the paper prints for the first dense layer; its text has
    32, which gives 2048.

    >>> [part.in_features for part in cnn((3, 32, 32), 10).make() if isinstance(part, nn.Linear)]
    [4096, 512, 128]
    """
    channels, height, width = _image(shape, multiple=4)
    count("filters", filters)

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, filters, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(filters * (height // 4) * (width // 4), 512),
            nn.ReLU(),
            nn.Linear(512, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )

    return Model("cnn", make, functional.cross_entropy)


_VGG = {
    "vgg11": (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    "vgg16": (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
}
"""Output channels of the 3x3 convolutions in order; 0 is a 2x2 max pool."""
_NARROW = (1, 2, 4, 8)
"""What divides them: a fourth of the width takes a sixteenth of the time."""


def _drawn_by_he(part: nn.Conv2d) -> nn.Conv2d:
    """The convolution with weights of variance 2 / (outputs of one input) and biases of 0, as VGG is usually drawn.

    Where a layer has as many inputs as outputs, torch's own initialisation has a sixth of that variance. After eight to
    thirteen layers next to nothing of the input is left, and plain VGG does not learn at the paper's rates.
    """
    nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    if part.bias is not None:
        nn.init.zeros_(part.bias)
    return part


def _vgg(name: str, shape: Sequence[int], classes: int, norm: Literal["none", "group"], narrow: int) -> Model:
    channels, height, width = _image(shape, multiple=32)
    if narrow not in _NARROW:
        raise InputError(f"narrow must be one of {', '.join(map(str, _NARROW))}, not {narrow!r}; 1 is the whole width.")
    if norm not in ("none", "group"):
        raise InputError(f"norm must be none or group, not {norm!r}; BatchNorm would make F_i depend on the batch.")

    def make() -> nn.Module:
        parts: list[nn.Module] = []
        before = channels
        for filters in _VGG[name]:
            if filters == 0:
                parts.append(nn.MaxPool2d(2))
                continue
            after = filters // narrow
            parts.append(_drawn_by_he(nn.Conv2d(before, after, 3, padding=1)))
            if norm == "group":
                parts.append(nn.GroupNorm(32 // narrow, after))
            parts.append(nn.ReLU())
            before = after
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(before * (height // 32) * (width // 32), classes))

    return Model(name, make, functional.cross_entropy)


def vgg11(shape: Sequence[int], classes: int, *, norm: Literal["none", "group"] = "none", narrow: int = 1) -> Model:
    """VGG-11 in its form for 32x32 images, without normalisation or with GroupNorm; ``narrow`` divides all widths.

    Convolutions are drawn as He et al. (2015) draw them, by their outputs, with biases of 0; the dense layer as torch
    draws it.

    >>> sum(p.numel() for p in vgg11((3, 32, 32), 10).make().parameters())
    9225610
    """
    return _vgg("vgg11", shape, classes, norm, narrow)


def vgg16(shape: Sequence[int], classes: int, *, norm: Literal["none", "group"] = "none", narrow: int = 1) -> Model:
    """VGG-16 in its form for 32x32 images, without normalisation or with GroupNorm; ``narrow`` divides all widths.

    Convolutions are drawn as He et al. (2015) draw them, by their outputs, with biases of 0; the dense layer as torch
    draws it.

    >>> sum(p.numel() for p in vgg16((3, 32, 32), 10).make().parameters())
    14719818
    """
    return _vgg("vgg16", shape, classes, norm, narrow)


def resnet20(shape: Sequence[int], classes: int, *, width: int = 16, groups: int = 8) -> Model:
    """ResNet-20 for images of 32x32 with GroupNorm and shortcuts without parameters; ``width`` channels at first.

    ``groups`` is in how many groups each layer's channels are normalised. BatchNorm, which the network was published
    with, would make F_i depend on the batch.

    >>> sum(p.numel() for p in resnet20((3, 32, 32), 10).make().parameters())
    269722
    """
    channels, _, _ = _image(shape, multiple=4)
    if count("width", width) % count("groups", groups):
        raise InputError(f"groups must divide the width {width}, not be {groups}; choose another number of groups.")
    return Model("resnet20", lambda: ResNet20(channels, classes, width, groups), functional.cross_entropy)


def transformer(shape: Sequence[int], classes: int, *, width: int = 64, heads: int = 4, layers: int = 2) -> Model:
    """A decoder-only transformer that predicts every next token; the classes are the tokens.

    Targets are (batch, time), negative where there is nothing to predict. The loss is the mean over sequences of each
    sequence's mean cross-entropy, and the accuracy the fraction of tokens that have the largest output.

    >>> sum(p.numel() for p in transformer((32,), 31).make().parameters())
    106143
    """
    if len(shape) != 1:
        raise InputError(
            f"The transformer needs sequences of tokens, each of shape (time,), not inputs of shape {tuple(shape)};"
            " choose the data set text, or resnet20 for images."
        )
    if count("width", width) % count("heads", heads):
        raise InputError(f"heads must divide the width {width}, not be {heads}; choose another number of heads.")
    count("layers", layers)
    return Model(
        "transformer",
        lambda: Decoder(classes, shape[0], width, heads, layers),
        token_entropy,
        accuracy=token_accuracy,
    )


MODELS: Mapping[str, Callable[..., Model]] = {
    factory.__name__: factory for factory in (mlp, linear, softmax, cnn, vgg11, vgg16, resnet20, transformer)
}


def _image(shape: Sequence[int], multiple: int) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[1] % multiple or shape[2] % multiple:
        raise InputError(
            f"This model needs images of (channels, height, width) with sides divisible by {multiple},"
            f" not inputs of shape {tuple(shape)}; choose mlp or softmax."
        )
    return shape[0], shape[1], shape[2]


def make_model(name: str, shape: Sequence[int], classes: int, **options: Any) -> Model:
    """Make a model by name, or by ``package.module:factory``, a function of ``(shape, classes, **options)``.

    The factory returns a :class:`Model`, or a module that is then trained with cross-entropy.

    >>> make_model("mpl", (8, 8), 10)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no model mpl; did you mean mlp?
    """
    if not isinstance(name, str):
        raise InputError(
            f"A model's name must be text, not a {type(name).__name__}; a module of your own goes to federate as it is."
        )
    if ":" in name:
        return _own(name, shape, classes, options)
    if name not in MODELS:
        raise InputError(f"There is no model {name}; {nearest(name, MODELS)}")
    allowed = list(inspect.signature(MODELS[name]).parameters)[2:]
    for option in options:
        if option not in allowed:
            takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
            raise InputError(f"The model {name} has no option {option}; {takes}.")
    return MODELS[name](shape, classes, **options)


def _own(name: str, shape: Sequence[int], classes: int, options: Mapping[str, Any]) -> Model:
    factory = find_user_code(name, "model")

    def make() -> Any:
        how = f"its factory is called with the shape {tuple(shape)}, the number {classes} of classes and its options"
        with error_context(f"The model {name} cannot be made", how):
            return factory(shape, classes, **options)

    made = make()
    if isinstance(made, Model):
        return made
    if isinstance(made, nn.Module):
        return Model(name, make, functional.cross_entropy)
    raise InputError(f"{name} must return a Model or a torch module, not a {type(made).__name__}.")
