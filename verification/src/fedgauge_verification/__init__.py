"""Tries to break the theorems, by random and directed search on problems where the truth is known.

Nothing is imported here, so that the help of ``fedgauge falsify`` need not wait for numpy.

>>> from fedgauge_verification.campaign import run
>>> found = run("strongly-convex", "printed", samples=5, searches=1, jobs=1)
>>> found.cases[0].origin, found.cases[0].check.violated
('named', True)
"""
