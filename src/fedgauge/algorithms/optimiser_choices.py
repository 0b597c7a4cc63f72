"""Which of torch's optimisers workers run, with its arguments, as text for experiments, settings and other processes.

``optimiser = "torch.optim.Muon"`` names the optimiser and ``optimiser_options = "momentum=0.9, nesterov=True"`` its
arguments. ``optimiser_groups = "vectors: optimiser='torch.optim.AdamW', weight_decay=0.0"`` is for parameters that are
treated otherwise. A group's name is ``vectors`` (biases and norms), ``embeddings``, or a pattern of parameter names
such as ``*.bias``; a parameter belongs to the first group that it matches. ``rate`` in a group is a factor for gamma.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from fedgauge.base.errors import InputError, nearest, positive
from fedgauge.base.user_code import find_user_code

_PREFIX = "torch.optim."


@dataclass(frozen=True)
class OptimiserChoice:
    """An optimiser with its options and groups, all as text."""

    optimiser: str
    options: str = ""
    groups: str = ""


def is_torch(optimiser: Any) -> bool:
    """Whether an optimiser is not one of the hand-written ones: a class, a function, or the name of either."""
    return callable(optimiser) or (isinstance(optimiser, str) and (":" in optimiser or optimiser.startswith(_PREFIX)))


def name_of(optimiser: Any) -> str:
    """The text that names an optimiser.

    >>> import torch
    >>> name_of(torch.optim.Adam)
    'torch.optim.Adam'
    """
    if isinstance(optimiser, str):
        return optimiser
    name, module = getattr(optimiser, "__qualname__", ""), getattr(optimiser, "__module__", "")
    if module.startswith("torch.optim") and "." not in name:
        return f"{_PREFIX}{name}"
    if not name or "<" in name or getattr(sys.modules.get(module), name, None) is not optimiser:
        raise InputError(
            f"The local optimiser {name or optimiser!r} must be a class or a function at the top of a module, so that"
            " other processes find it; move it there."
        )
    return f"{module}:{name}"


def spelled(options: Mapping[str, Any]) -> str:
    """Arguments as text.

    >>> spelled({"betas": (0.9, 0.95), "nesterov": True})
    'betas=(0.9, 0.95), nesterov=True'
    """
    for name, value in options.items():
        try:
            same = ast.literal_eval(repr(value)) == value
        except (ValueError, SyntaxError):
            same = False
        if not same:
            raise InputError(f"{name} of a local optimiser must be a number, text or a list of them, not {value!r}.")
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


@lru_cache(maxsize=64)
def read_options(text: str) -> Mapping[str, Any]:
    """Arguments from text, which are numbers, text, or lists and pairs of them.

    >>> dict(read_options("betas=(0.9, 0.95), nesterov=true"))
    {'betas': (0.9, 0.95), 'nesterov': True}
    """
    try:
        (call,) = ast.parse(f"f({text})").body
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        assert not call.value.args
        return MappingProxyType({str(each.arg): _literal(each.value) for each in call.value.keywords})
    except (SyntaxError, ValueError, AssertionError):
        raise InputError(
            f"The options of a local optimiser must be written as in betas=(0.9, 0.95), weight_decay=0.1, not {text!r}."
        ) from None


def _literal(node: ast.expr) -> Any:
    words = {"true": True, "false": False, "none": None}
    return words[node.id] if isinstance(node, ast.Name) and node.id in words else ast.literal_eval(node)


def spelled_groups(groups: Mapping[str, Mapping[str, Any]] | str | None, gamma: float) -> str:
    """Groups as text; a group's ``lr`` becomes its ``rate``, the factor for gamma.

    >>> spelled_groups({"vectors": {"weight_decay": 0.0}, "*.head": {"lr": 0.2}}, 0.1)
    'vectors: weight_decay=0.0; *.head: rate=2.0'
    """
    if isinstance(groups, str) or groups is None:
        groups = read_groups(groups or "")
    parts = []
    for pattern, given in groups.items():
        options = dict(given)
        if "lr" in options:
            options["rate"] = positive("lr", options.pop("lr")) / gamma
        if "optimiser" in options:
            options["optimiser"] = name_of(options["optimiser"])
        parts.append(f"{pattern}: {spelled(options)}")
    return "; ".join(parts)


def read_groups(text: str) -> dict[str, Mapping[str, Any]]:
    """Groups from text, each with its options.

    >>> {name: dict(options) for name, options in read_groups("vectors: weight_decay=0.0; *.head: rate=2").items()}
    {'vectors': {'weight_decay': 0.0}, '*.head': {'rate': 2}}
    """
    groups: dict[str, Mapping[str, Any]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        pattern, colon, options = part.partition(":")
        if not colon:
            raise InputError(
                f"optimiser_groups must be NAME: OPTIONS, as in vectors: weight_decay=0.0, with ; between groups, not"
                f" {part!r}."
            )
        groups[pattern.strip()] = read_options(options)
    return groups


def made_by(name: str) -> Callable[..., Any]:
    """The class or the factory that a text names."""
    if name.startswith(_PREFIX):
        return _of_torch(name)
    module, _, place = name.partition(":")
    return getattr(sys.modules.get(module), place, None) or find_user_code(name, "local optimiser")


@lru_cache(maxsize=16)
def _of_torch(name: str) -> Callable[..., Any]:
    import torch

    known = {
        each: kind
        for each, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    if (place := name.removeprefix(_PREFIX)) not in known:
        raise InputError(f"torch.optim has no {place!r}; {nearest(place, known)}")
    return known[place]
