"""Types that several packages name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of any numbers."""
Floats = npt.NDArray[np.float64]
"""An array of float64 numbers."""
Integers = npt.NDArray[np.int64]
"""An array of int64 numbers, such as the indices of workers."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how far it is, and how far it has to go if that is known."""
ProgressOption = Progress | Literal["auto"] | None
"""What callers may say about progress: a function; ``auto`` for a bar where a person would see it; None for silence."""
