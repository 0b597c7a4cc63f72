"""A stand-in for torchvision, which FedLab and fluke import and these workloads do not use.

Its wheels on PyPI belong to torch's CUDA builds and cannot be imported beside the CPU build. The stand-in only makes
the import statements succeed: whatever is imported from it is an empty class, and using one fails.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        def take(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__module__": module.__name__})

        module.__getattr__ = take  # type: ignore[method-assign]


def stand_in_for_torchvision() -> None:
    """Put the stand-in in place of torchvision from now on."""
    sys.meta_path.insert(0, _Finder())
