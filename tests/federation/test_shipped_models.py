"""VGG, the residual network and the transformer: their form, their first models, and how they train."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedgauge.base.errors import InputError
from fedgauge.data.text import read_text
from fedgauge.federation.kernels.base import token_entropy
from fedgauge.federation.models import MODELS, make_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("name", "layers"), [("vgg11", 8), ("vgg16", 13)])
@pytest.mark.parametrize("norm", ["none", "group"])
def test_vggs_convolutions_are_drawn_by_he_and_let_inputs_through(name: str, layers: int, norm: str) -> None:
    torch.manual_seed(0)
    module = make_model(name, (3, 32, 32), 10, norm=norm, narrow=4).make()
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == layers
    for part in convolutions:
        # Variance 2 / (outputs of one input); 4 deviations of the estimate of a deviation.
        expected = math.sqrt(2 / (9 * part.out_channels))
        assert float(part.weight.detach().std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * part.weight.numel()))
        assert part.bias is not None
        assert not part.bias.detach().any()
    x = torch.randn(64, 3, 32, 32)
    # How much outputs differ between images; without GroupNorm and as torch draws convolutions, it is below 0.0001.
    assert 0.005 < float(module(x).detach().std(dim=0).mean()) < 1


@pytest.mark.parametrize(("width", "groups"), [(16, 8), (8, 2)])
def test_resnet20_keeps_its_shapes_and_the_size_of_what_passes_through(width: int, groups: int) -> None:
    torch.manual_seed(0)
    module = make_model("resnet20", (3, 32, 32), 10, width=width, groups=groups).make()
    weights = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert len(weights) == 20
    assert not any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    for part in weights[:-1]:
        assert isinstance(part, nn.Conv2d)
        # He: variance 2 / (number of inputs); 4 deviations of the estimate of a deviation.
        expected = math.sqrt(2 / (9 * part.in_channels))
        assert float(part.weight.detach().std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * part.weight.numel()))
    outputs = module(torch.randn(4, 3, 32, 32)).detach()
    assert outputs.shape == (4, 10)
    assert 0.1 < float(outputs.std()) < 10


def test_a_block_that_learned_nothing_passes_its_input_through() -> None:
    module = make_model("resnet20", (3, 8, 8), 10, width=4, groups=2).make()
    block = module.get_submodule("blocks.3")
    nn.init.zeros_(block.get_parameter("second_norm.weight"))
    x = torch.rand(2, 4, 8, 8)
    expected = torch.cat([x[:, :, ::2, ::2], torch.zeros(2, 4, 4, 4)], dim=1)
    torch.testing.assert_close(block(x), expected)


def test_the_transformer_sees_nothing_of_what_comes_later() -> None:
    module = make_model("transformer", (12,), 7, width=16, heads=2, layers=2).make()
    x = torch.randint(7, (3, 12))
    changed = x.clone()
    changed[:, 8:] = (x[:, 8:] + 1) % 7
    before, after = module(x).detach(), module(changed).detach()
    torch.testing.assert_close(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])
    # Before training, no token is preferred.
    assert float(token_entropy(before, x)) == pytest.approx(math.log(7), rel=0.02)


def test_the_transformer_attends_as_torchs_own_layer_does() -> None:
    torch.manual_seed(0)
    module = make_model("transformer", (6,), 5, width=8, heads=2, layers=1).make()
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, functional.gelu, batch_first=True, norm_first=True)
    layer = module.get_submodule("layers.0")
    pairs = {
        "self_attn.in_proj_": "attention.ask.",
        "self_attn.out_proj.": "attention.answer.",
        "linear1.": "dense.0.",
        "linear2.": "dense.2.",
        "norm1.": "attention_norm.",
        "norm2.": "dense_norm.",
    }
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        for their, our in pairs.items():
            for kind in ("weight", "bias"):
                theirs.get_parameter(f"{their}{kind}").copy_(layer.get_parameter(f"{our}{kind}"))
    x, mask = torch.randn(3, 6, 8), nn.Transformer.generate_square_subsequent_mask(6)
    torch.testing.assert_close(layer(x), theirs(x, src_mask=mask, is_causal=True), rtol=1e-4, atol=1e-4)


def test_the_loss_over_tokens_is_cross_entropy_and_leaves_masked_ones_out() -> None:
    outputs, targets = torch.randn(4, 5, 3), torch.randint(3, (4, 5))
    torch.testing.assert_close(
        token_entropy(outputs, targets), functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    )
    targets[0, 2:] = -1
    alone = [functional.cross_entropy(o[t >= 0], t[t >= 0]) for o, t in zip(outputs, targets, strict=True)]
    torch.testing.assert_close(token_entropy(outputs, targets), torch.stack(alone).mean())
    assert float(token_entropy(outputs[:1], torch.full((1, 5), -1))) == 0.0


def test_the_transformer_learns_text() -> None:
    torch.manual_seed(0)
    text = read_text()
    model = make_model("transformer", (32,), 31, width=16, heads=2, layers=1)
    module = model.make()
    x, y = torch.from_numpy(text.train_inputs.copy()), torch.from_numpy(text.train_labels.copy())
    optimiser = torch.optim.AdamW(module.parameters(), 1e-2)
    for step in range(30):
        batch = torch.arange(step, len(x), 150)
        optimiser.zero_grad()
        model.loss(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    shares = torch.bincount(y.flatten()).double() / y.numel()
    guess = float(torch.special.entr(shares).sum())
    assert float(model.loss(module(x[::40]), y[::40]).detach()) < 0.85 * guess


@pytest.mark.parametrize(
    ("name", "shape", "options", "sentence"),
    [
        ("resnet20", (3, 32, 32), {"groups": 3}, "groups must divide the width 16, not be 3"),
        ("resnet20", (3, 30, 30), {}, "divisible by 4"),
        ("resnet20", (3, 32, 32), {"width": 0}, "width"),
        (
            "transformer",
            (3, 32, 32),
            {},
            r"sequences of tokens.*not inputs of shape \(3, 32, 32\); choose the data set",
        ),
        ("transformer", (32,), {"heads": 5}, "heads must divide the width 64, not be 5"),
        ("transformer", (32,), {"layers": 0}, "layers"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], options: dict[str, int], sentence: str
) -> None:
    assert name in MODELS
    with pytest.raises(InputError, match=sentence):
        make_model(name, shape, 10, **options)
