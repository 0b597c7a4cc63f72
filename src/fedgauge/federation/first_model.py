"""A model from outside, held against the federation that it is for."""

from __future__ import annotations

import torch

from fedgauge.errors import InputError
from fedgauge.federation.protocols import Federation


def check_model(federation: Federation, model: torch.Tensor) -> torch.Tensor:
    """A model of the federation's shape, number type and device; refuse one that does not fit or is not finite."""
    like = federation.start(0)
    if model.shape != like.shape:
        raise InputError(
            f"The model has {model.numel()} parameters, but the federation's has {len(like)}; give one of that form."
        )
    if not torch.isfinite(model).all():
        raise InputError("The model is not finite: it has diverged; give an earlier one, or train with a smaller rate.")
    return model.to(like)
