"""The algorithm of a run as it goes over the wire: its name, its numbers, and a fingerprint of the user's own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauge.algorithms import fingerprint, make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.errors import InputError


def described(algorithm: Algorithm) -> dict[str, Any]:
    """What a node needs in order to make the algorithm, and to see that it is the same one.

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
    """The algorithm that a message describes; refuse one whose code is not the server's."""
    numbers = dict(zip(message["parameters"], message["numbers"], strict=True))
    algorithm = make_algorithm(message["algorithm"], **numbers)
    if (fingerprint(algorithm) or "") != message.get("code", ""):
        raise InputError(
            f"The algorithm {algorithm.name} on this node is not the server's; install the same module, and the same"
            " release of Python, on both."
        )
    return algorithm
