"""By what a resumed run recognises its federation: fingerprints of its parts, and what they compute.

A part is known by its data or its code. What code cannot say, such as another release of an installed package, shows in
the losses and gradients of a few samples. Those are kept as numbers and compared with a tolerance, not as a digest:
another processor or another number of threads changes their last bits, and such a run may well be resumed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedgauge.errors import InputError
from fedgauge.federation.protocols import HasLosses, Indices
from fedgauge.system.fingerprints import Fingerprint

MOST_WORKERS, SAMPLES = 16, 2
"""How many workers are looked at, and how many samples of each: a few milliseconds with a small network."""


@dataclass(frozen=True)
class Identity:
    """Fingerprints of what a federation consists of, by the name of each part.

    >>> Identity({"l2": Fingerprint("ab", ())}).digest[:8] == Identity({"l2": Fingerprint("ac", ())}).digest[:8]
    False
    """

    parts: Mapping[str, Fingerprint]

    @property
    def digest(self) -> str:
        """SHA-256 of all parts."""
        text = "".join(f"{name}:{part.digest};" for name, part in sorted(self.parts.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self) -> None:
        """Refuse what could not be recognised in another process."""
        for name, part in self.parts.items():
            if part.unknown:
                raise InputError(
                    f"The {name} holds a {part.unknown[0]}, which cannot be compared when the run is resumed; keep such"
                    " things out of it, or run without keep."
                )


def looked_at(num_workers: int) -> Indices:
    """Which workers' samples are looked at: all, or a few from the first to the last."""
    return np.unique(np.linspace(0, num_workers - 1, MOST_WORKERS).astype(np.int64))


def described(identity: Identity, model: torch.Tensor, few: HasLosses, num_workers: int) -> dict[str, Any]:
    """What is saved with a run: the parts, and the losses and gradients of a few samples at the first model.

    Args:
        identity: the parts.
        model: the first model.
        few: the workers that are looked at, with a few samples of each.
        num_workers: how many they are.
    """
    identity.check()
    direction = torch.arange(len(model), dtype=torch.float64).cos_().to(model.device)
    values: dict[str, list[float | None]] = {"loss": [], "gradient": [], "along": []}
    for worker in range(num_workers):
        loss, gradient = few.evaluate(model.unsqueeze(0), np.array([worker]))
        slope = gradient[0].double()
        for name, value in (("loss", loss[0]), ("gradient", slope.norm()), ("along", slope @ direction)):
            # JSON has no infinities, and no NaN.
            values[name].append(float(value) if math.isfinite(value) else None)
    return {
        "parts": {name: part.digest for name, part in identity.parts.items()},
        "number_type": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),  # for information only
        "values": values,
    }
