"""The algorithms by name: those that come with fedgauge, and a user's own as ``module:factory``.

To add one, write its file, import its factory here and name it in ``ALGORITHMS``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

from fedgauge.algorithms.adaptive import fedadagrad as fedadagrad
from fedgauge.algorithms.adaptive import fedadam as fedadam
from fedgauge.algorithms.adaptive import fedyogi as fedyogi
from fedgauge.algorithms.base import Algorithm as Algorithm
from fedgauge.algorithms.fedavg import fedavg as fedavg
from fedgauge.algorithms.fednova import fednova as fednova
from fedgauge.algorithms.fedprox import fedprox as fedprox
from fedgauge.algorithms.minibatch import minibatch as minibatch
from fedgauge.algorithms.momentum import momentum as momentum
from fedgauge.algorithms.scaffold import scaffold as scaffold
from fedgauge.algorithms.slowmo import slowmo as slowmo
from fedgauge.errors import InputError, nearest
from fedgauge.system.imports import blamed, find_own

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    factory.__name__: factory
    for factory in (fedavg, momentum, minibatch, fedadam, fedadagrad, fedyogi, fedprox, scaffold, fednova, slowmo)
}


def _factory(name: str) -> Callable[..., Any]:
    """The function that makes an algorithm."""
    if ":" in name:
        factory = find_own(name, "algorithm")
        if not callable(factory):
            raise InputError(f"{name} must be a function that makes an algorithm, not a {type(factory).__name__}.")
        return factory
    if name not in ALGORITHMS:
        raise InputError(f"There is no algorithm {name}; {nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def _signature(name: str) -> inspect.Signature:
    factory = _factory(name)
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        raise InputError(f"{name} does not say which parameters it takes; name a function written in Python.") from None


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: each for name, each in signature.parameters.items() if each.kind in named}


def parameters_of(name: str) -> list[str]:
    """The parameters that an algorithm takes, in order.

    >>> parameters_of("momentum")
    ['gamma', 'beta', 'eta']
    >>> parameters_of("fedgauge.algorithms.fedavg:fedavg")
    ['gamma', 'eta']
    """
    return list(_named(_signature(name)))


def make_algorithm(name: str, **parameters: float) -> Algorithm:
    """Make an algorithm by name, refusing parameters that it does not have.

    Args:
        name: the name of an algorithm of fedgauge, or ``module:factory`` for your own function that returns an
            :class:`Algorithm`. Its name is then ``module:factory``, and its parameters are the factory's arguments, so
            that it can be made again.
        **parameters: the factory's arguments; those without a default are required.

    >>> make_algorithm("fedavg", gamma=0.1, eta=2.0).name
    'fedavg'
    >>> make_algorithm("fedavgg", gamma=0.1)
    Traceback (most recent call last):
    fedgauge.errors.InputError: There is no algorithm fedavgg; did you mean fedavg?
    """
    signature = _signature(name)
    allowed = _named(signature)
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    for parameter in parameters:
        if parameter not in allowed and not open_ended:
            takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
            raise InputError(f"{name} has no parameter {parameter}; {takes}.")
    for parameter, each in signature.parameters.items():
        if each.default is inspect.Parameter.empty and parameter in allowed and parameter not in parameters:
            if parameter == "gamma":
                raise InputError(f"{name} needs gamma, the local learning rate; give a number above 0.")
            raise InputError(f"{name} needs {parameter}; give it as a parameter.")
    with blamed(f"The algorithm {name} cannot be made") if ":" in name else nullcontext():
        made = _factory(name)(**parameters)
    if not isinstance(made, Algorithm):
        raise InputError(f"{name} must return an Algorithm, not a {type(made).__name__}.")
    if ":" not in name:
        return made
    defaults = {parameter: each.default for parameter, each in allowed.items()}
    return replace(made, name=name, parameters={**defaults, **parameters})


def fingerprint(algorithm: Algorithm) -> str | None:
    """A fingerprint of an algorithm that is not exactly what the registry makes from its name and parameters.

    Returns:
        ``None`` for fedgauge's own algorithms; otherwise SHA-256 of the algorithm's functions (their code, closures,
        default values and the globals that they read), the same in every process of one release of Python.

    >>> fingerprint(fedavg(0.1)) is None
    True
    >>> mine = replace(fedavg(0.1), step=lambda local, gradient: {"x": local["x"] - 0.1 * gradient.sign()})
    >>> len(fingerprint(mine))
    64
    """
    found = _digest(algorithm)
    factory = ALGORITHMS.get(algorithm.name)
    if factory is not None:
        try:
            plain = factory(**algorithm.parameters)
        except (TypeError, InputError):
            return found
        if _digest(plain) == found:
            return None
    return found


def _digest(algorithm: Algorithm) -> str:
    # Imported here, because it needs numpy, which the command's help does not wait for.
    from fedgauge.algorithms.fingerprints import digest

    return digest({field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
