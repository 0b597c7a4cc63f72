"""Proves the constants of regression, and tries to break the theorems, by searches where the truth is known.

>>> from fedgauge_verification.campaign import run
>>> found = run("strongly-convex", "printed", samples=5, searches=1, jobs=1)
>>> found.cases[0].origin, found.cases[0].check.violated
('named', True)
"""

from __future__ import annotations

import lazy_loader

# As in fedgauge: a public name is imported when it is first used, so that the help of the commands need not wait.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
