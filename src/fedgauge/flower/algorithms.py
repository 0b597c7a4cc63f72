"""The algorithm of a run as it is sent to nodes: its name, its parameters, and a fingerprint of the user's own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.algorithms import fingerprint, make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.errors import InputError


def described(algorithm: Algorithm) -> dict[str, Any]:
    """Describe an algorithm so that a node can make it, and can check that it runs the same code.

    >>> described(make_algorithm("fedavg", gamma=0.1))
    {'algorithm': 'fedavg', 'parameters': ['gamma', 'eta'], 'numbers': [0.1, 1.0], 'code': ''}
    """
    return {
        "algorithm": algorithm.name,
        "parameters": list(algorithm.parameters),
        "numbers": [float(value) for value in algorithm.parameters.values()],
        "code": fingerprint(algorithm) or "",
    }


def algorithm_of(message: Mapping[str, Any]) -> Algorithm:
    """Make the algorithm that a message describes; refuse it if this node's code differs from the server's."""
    numbers = dict(zip(message["parameters"], message["numbers"], strict=True))
    algorithm = make_algorithm(message["algorithm"], **numbers)
    if (fingerprint(algorithm) or "") != message.get("code", ""):
        raise InputError(
            f"The code of the algorithm {algorithm.name} on this node differs from the server's; install the same"
            " module, and the same release of Python, on both."
        )
    return algorithm
