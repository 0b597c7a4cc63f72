"""Tries to break the theorems, by random and directed search on problems where the truth is known.

>>> from fedgauge.falsify import run
>>> found = run("strongly-convex", "printed", samples=5, searches=1, jobs=1)
>>> found.cases[0].origin, found.cases[0].check.violated
('named', True)
"""

from fedgauge.falsify.campaign import Outcome, Row, pairs, run
from fedgauge.falsify.replay import save
from fedgauge.falsify.strategies import Case

__all__ = ["Case", "Outcome", "Row", "pairs", "run", "save"]
