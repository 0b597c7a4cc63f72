"""The public names; ``__init__.py`` imports each from here when it is first used."""

from .certification import certify as certify
from .certified import Certified as Certified

__all__: list[str]
