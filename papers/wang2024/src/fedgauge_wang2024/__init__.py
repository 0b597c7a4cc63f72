"""The paper's tables and figures, by one command each, federations of equal zeta, and other measures beside ours."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
