"""Whether a run that is resumed has the federation that it began with, and if not, what is another one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.errors import InputError

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _tolerance(number_type: Any) -> float:
    """How far values may differ, relative to the largest of their kind.

    Sixteen roots of the rounding unit (0.006 in float32): other processors and their libraries add up in another order
    and multiply with fewer digits, which changes less than that, while another loss changes more.
    """
    return 16 * math.sqrt(_EPSILON.get(str(number_type), 2.0**-7))


def refuse_other_federation(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to resume a run with another federation, naming its parts that are others.

    Args:
        path: the run's directory.
        old: what the run's federation was described as.
        new: what this one is described as.
    """
    parts, others = (each.get("parts", {}) for each in (old, new))
    differing = [name for name in {**parts, **others} if parts.get(name) != others.get(name)]
    if differing:
        what = ", ".join(f"another {name}" for name in differing)
        raise InputError(
            f"The run in {path} was made with {what}; resume it with what it was made with, or choose another"
            " directory."
        )
    for name, values in old.get("values", {}).items():
        if not _close(values, new.get("values", {}).get(name), _tolerance(new.get("number_type"))):
            raise InputError(
                f"The run in {path} was made with a federation that has other losses or gradients, although its code"
                " and data look the same; use the releases of installed packages that environment.json names, or"
                " choose another directory."
            )


def _close(old: Any, new: Any, tolerance: float) -> bool:
    if not (isinstance(old, Sequence) and isinstance(new, Sequence) and len(old) == len(new)):
        return False
    scale = max((abs(value) for value in (*old, *new) if value is not None), default=0.0)
    return all(
        one is other if one is None or other is None else abs(one - other) <= tolerance * scale
        for one, other in zip(old, new, strict=True)
    )
