"""The public names; ``__init__.py`` imports each from here when it is first used."""

from .inspection import inspect_models as inspect_models
from .inspection_result import Inspection as Inspection

__all__: list[str]
