"""The algorithm of a run as it is sent to nodes: its name, its parameters, and a fingerprint of the user's own code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedgauge.algorithms import fingerprint, make_algorithm
from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError


def described(algorithm: Algorithm) -> dict[str, Any]:
    """Describe an algorithm so that a node can make it, and can check that it runs the same code.

    >>> described(make_algorithm("fedavg", gamma=0.1))
    {'algorithm': 'fedavg', 'parameters': ['gamma', 'eta'], 'numbers': [0.1, 1.0], 'code': ''}
    >>> described(make_algorithm("fedavgm", gamma=0.1, nesterov=True))["others"]
    '{"nesterov": true}'
    """
    others = {name: value for name, value in algorithm.parameters.items() if isinstance(value, bool | str)}
    numbers = {name: float(value) for name, value in algorithm.parameters.items() if name not in others}
    return {
        "algorithm": algorithm.name,
        "parameters": list(numbers),
        "numbers": list(numbers.values()),
        "code": fingerprint(algorithm) or "",
        **({"others": json.dumps(others)} if others else {}),
    }


def algorithm_of(message: Mapping[str, Any]) -> Algorithm:
    """Make the algorithm that a message describes; refuse it if this node's code differs from the server's."""
    numbers = dict(zip(message["parameters"], message["numbers"], strict=True))
    algorithm = make_algorithm(message["algorithm"], **numbers, **json.loads(message.get("others", "{}")))
    if (fingerprint(algorithm) or "") != message.get("code", ""):
        raise InputError(
            f"The code of the algorithm {algorithm.name} on this node differs from the server's; install the same"
            " module, and the same release of Python, on both."
        )
    return algorithm
