"""A tiny GPT-2 with adapters of low rank, made at random: nothing is downloaded."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedgauge import SupervisedFederation

VOCABULARY, TIME = 17, 6


@contextmanager
def _importing() -> Iterator[None]:
    """Without a torchvision that does not fit torch, which transformers would import, and without other warnings."""
    hidden: dict[str, Any] = {}
    try:
        import torchvision  # type: ignore[import-untyped] # noqa: F401
    except Exception:  # built for another release of torch, it raises whatever it likes
        hidden = {"torchvision": None}
    before = {name: sys.modules[name] for name in hidden if name in sys.modules}
    sys.modules.update(hidden)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(before)


def lora() -> nn.Module:
    """GPT-2 with one block, whose attention has adapters; everything else is frozen by peft."""
    with _importing():
        from peft import LoraConfig, get_peft_model
        from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=TIME, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    adapters = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0)
    with _importing():
        made: nn.Module = get_peft_model(GPT2LMHeadModel(config), adapters)
    return made


def next_token(outputs: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of each next token."""
    return functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def text(samples: int = 24) -> torch.Tensor:
    return torch.randint(VOCABULARY, (samples, TIME), generator=torch.Generator().manual_seed(3))


def federation(model: Any = lora, **how: Any) -> SupervisedFederation:
    tokens = text()
    shards = [range(10), range(10, 23), range(23, 24)]
    return SupervisedFederation(model, next_token, tokens, tokens, shards, **{"batch_size": 4, **how})
