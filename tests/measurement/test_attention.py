"""Second derivatives of attention, against differences of gradients, and readings that are kept at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedgauge as fg
from fedgauge.base.errors import InputError

pytestmark = pytest.mark.usefixtures("one_thread")


class Encoder(nn.Module):
    """One of torch's own encoder layers between an embedding and a head."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=dropout, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.layer(self.embed(x)))
        return outputs


def by_token(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def federation(dtype: torch.dtype = torch.float64) -> fg.SupervisedFederation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(5, (7, 3), generator=generator)
    torch.manual_seed(0)
    return fg.federate(Encoder().to(dtype), by_token, [(x[:6], x[:6].flip(1)), (x[6:], x[6:])], batch_size=2)


def test_products_with_the_hessian_are_differences_of_gradients() -> None:
    of, workers = federation(), np.arange(2)
    generator = torch.Generator().manual_seed(1)
    models, vectors = (torch.randn(2, of.dim, dtype=torch.float64, generator=generator) / 4 for _ in range(2))
    found = of.hessian_products(models, vectors, workers)
    step = 1e-5
    ahead, behind = (of.gradients(models + sign * step * vectors, workers) for sign in (1, -1))
    # Central differences are off by the third derivative times step^2, and by rounding over step: 1e-9 or so each.
    torch.testing.assert_close(found, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)


def test_every_usual_reading_is_taken_and_kept_as_soon_as_it_is_done() -> None:
    kept: list[list[str]] = []
    options = fg.MeasureOptions(rounds=1, seeds=1, tolerance=0.3)
    of = federation(torch.float32)
    found = fg.measure(
        of,
        fg.fedavg(0.1),
        local_steps=2,
        model=of.start(0),
        options=options,
        compute=fg.Compute(processes=1),
        keep=lambda so_far: kept.append([reading.name for reading in so_far.readings]),
    )
    names = [reading.name for reading in found.readings]
    assert names == ["divergence", "noise", "trajectory", "trajectory maximum", "curvature", "parts"]
    assert kept == [names[: number + 1] for number in range(len(names))]
    assert found.constants["L_h"].value > 0


class OnlyOnce(nn.Linear):
    """Attention by a kernel that can be differentiated once, called by its own name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x).view(len(x), 1, 1, -1).expand(-1, -1, 3, -1).contiguous()
        attended: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(y, y, y)[0]
        return attended[:, 0, 0]


def test_a_model_without_second_derivatives_leaves_the_other_readings() -> None:
    x, y = torch.randn(8, 3), torch.arange(8) % 2
    of = fg.federate(OnlyOnce(3, 2), functional.cross_entropy, [(x[:4], y[:4]), (x[4:], y[4:])])
    options = fg.MeasureOptions(("divergence", "curvature"))
    found = fg.measure(of, fg.fedavg(0.1), local_steps=1, model=of.start(0), options=options)
    assert found.reading("divergence") is not None
    curvature = found.reading("curvature")
    assert curvature is not None
    assert "no second derivatives" in curvature.notes[0]
    with pytest.raises(InputError, match="no second derivatives"):
        fg.measure(of, fg.fedavg(0.1), model=of.start(0), options=fg.MeasureOptions(("curvature",)))
