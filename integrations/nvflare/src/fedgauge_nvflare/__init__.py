"""NVFlare jobs whose local steps a live gauge chooses.

No other part of fedgauge imports NVFlare. This package imports it only when one of its names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgauge_nvflare.live import LiveAggregator as LiveAggregator

LOCAL_STEPS = "local_steps"
"""The name of the local steps in the meta data of the model that a client receives."""

__all__ = ["LOCAL_STEPS", "LiveAggregator"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name != "LiveAggregator":
        raise AttributeError(f"module 'fedgauge_nvflare' has no attribute {name!r}")
    from fedgauge_nvflare.live import LiveAggregator

    return LiveAggregator
