"""The algorithms, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from fedgauge.algorithms.adaptive import fedadagrad, fedadam, fedyogi
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.fedavg import fedavg
from fedgauge.algorithms.fednova import fednova
from fedgauge.algorithms.fedprox import fedprox
from fedgauge.algorithms.minibatch import minibatch
from fedgauge.algorithms.momentum import momentum
from fedgauge.algorithms.scaffold import scaffold
from fedgauge.algorithms.slowmo import slowmo
from fedgauge.errors import InputError, nearest

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fednova",
    "fedprox",
    "fedyogi",
    "make_algorithm",
    "minibatch",
    "momentum",
    "parameters_of",
    "scaffold",
    "slowmo",
]

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    factory.__name__: factory
    for factory in (fedavg, momentum, minibatch, fedadam, fedadagrad, fedyogi, fedprox, scaffold, fednova, slowmo)
}


def parameters_of(name: str) -> list[str]:
    """The parameters that an algorithm takes, in order.

    >>> parameters_of("momentum")
    ['gamma', 'beta', 'eta']
    """
    if name not in ALGORITHMS:
        raise InputError(f"There is no algorithm {name}; {nearest(name, ALGORITHMS)}")
    return list(inspect.signature(ALGORITHMS[name]).parameters)


def make_algorithm(name: str, **parameters: float) -> Algorithm:
    """Make an algorithm by name, refusing parameters it does not have.

    >>> make_algorithm("fedavg", gamma=0.1, eta=2.0).name
    'fedavg'
    >>> make_algorithm("fedavgg", gamma=0.1)
    Traceback (most recent call last):
    fedgauge.errors.InputError: There is no algorithm fedavgg; did you mean fedavg?
    """
    allowed = parameters_of(name)
    for given in parameters:
        if given not in allowed:
            raise InputError(f"{name} has no parameter {given}; it takes {', '.join(allowed)}.")
    if "gamma" not in parameters:
        raise InputError(f"{name} needs gamma, the local learning rate; give a number above 0.")
    return ALGORITHMS[name](**parameters)
