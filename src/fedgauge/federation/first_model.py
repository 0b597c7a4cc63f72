"""A model from outside, checked against the federation that it is for, and the digest by which first models compare."""

from __future__ import annotations

import hashlib

import torch

from fedgauge.errors import InputError
from fedgauge.federation.protocols import Rows


def check_model(federation: Rows, model: torch.Tensor) -> torch.Tensor:
    """Return a model in the federation's number type and on its device; refuse one of another shape or not finite."""
    like = federation.start(0)
    if model.shape != like.shape:
        raise InputError(
            f"The model has {model.numel()} parameters, but the federation's has {len(like)}; give one of that size."
        )
    if not torch.isfinite(model).all():
        raise InputError(
            "The model is not finite: it has diverged; give an earlier one, or train with a smaller learning rate."
        )
    # A tensor that was made under inference_mode can be changed only there.
    return (model.clone() if model.is_inference() else model).to(like)


def digest_of(model: torch.Tensor) -> str:
    """SHA-256 of a flat model's bytes, by which a constant or a run says which first model it belongs to."""
    return hashlib.sha256(model.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
