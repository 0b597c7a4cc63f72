"""Federations over Flower: the same runs on real nodes, and measuring around any Flower strategy.

No other part of fedgauge imports Flower. This package imports it only when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgauge_flower.client import client_app as client_app
    from fedgauge_flower.gauge import Gauge as Gauge
    from fedgauge_flower.live import LiveStrategy as LiveStrategy
    from fedgauge_flower.mod import gauge_mod as gauge_mod
    from fedgauge_flower.partitions import FedgaugePartitioner as FedgaugePartitioner
    from fedgauge_flower.partitions import from_partitioner as from_partitioner
    from fedgauge_flower.requirement import check_address as check_address
    from fedgauge_flower.requirement import check_flower as check_flower
    from fedgauge_flower.result import plan_run as plan_run
    from fedgauge_flower.secure import run_securely as run_securely
    from fedgauge_flower.server import run_on as run_on
    from fedgauge_flower.server import server_app as server_app
    from fedgauge_flower.shard import Shard as Shard
    from fedgauge_flower.shard import experiment_of as experiment_of
    from fedgauge_flower.shard import held_out as held_out
    from fedgauge_flower.shard import shard_of as shard_of

_HOMES = {
    "requirement": "check_address check_flower",
    "client": "client_app",
    "gauge": "Gauge",
    "live": "LiveStrategy",
    "mod": "gauge_mod",
    "partitions": "FedgaugePartitioner from_partitioner",
    "result": "plan_run",
    "server": "run_on server_app",
    "secure": "run_securely",
    "shard": "Shard experiment_of held_out shard_of",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, after a check that a suitable Flower is installed."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedgauge_flower' has no attribute {name!r}")
    if _HOME[name] not in ("partitions", "requirement", "result", "shard"):
        from fedgauge_flower.requirement import check_flower

        check_flower()
    return getattr(import_module(f"fedgauge_flower.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
