"""Options of ``simulate`` by their plain names, for tests that vary one of them at a time."""

from __future__ import annotations

from typing import Any

from fedgauge.simulation.options import Compute, Keep, Recording, StopAt

_GROUPS: dict[str, tuple[type, dict[str, str]]] = {
    "record": (
        Recording,
        {"record_every": "every", "watch": "watch", "evaluator": "evaluator", "observer": "observer"},
    ),
    "stop": (StopAt, {"target_loss": "loss", "target_accuracy": "accuracy", "target_grad2": "grad2", "pause": "round"}),
    "compute": (Compute, {name: name for name in ("chunk", "processes", "engine", "address")}),
    "keep": (Keep, {"run": "directory", "resume": "resume", "checkpoint_every": "checkpoint_every"}),
}


def grouped(**options: Any) -> dict[str, Any]:
    """The same options as ``simulate`` takes them.

    >>> grouped(rounds=3, processes=2)
    {'rounds': 3, 'compute': Compute(processes=2, engine='local', address=None, chunk=None)}
    """
    found: dict[str, Any] = {}
    for group, (kind, names) in _GROUPS.items():
        chosen = {names[name]: options.pop(name) for name in list(options) if name in names}
        if chosen:
            found[group] = kind(**chosen)
    return {**options, **found}
