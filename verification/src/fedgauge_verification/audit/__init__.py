"""Attacks on certificates: files, first models, seeds and settings are mixed up, and real runs judge what is certified.

>>> from fedgauge_verification.audit import run
>>> found = run(trials=12, seed=1, data=False)
>>> found.trials, len(found.contradictions), found.certified > 0
(12, 0, True)
"""

from fedgauge_verification.audit.campaign import Audit, Contradiction, run

__all__ = ["Audit", "Contradiction", "run"]
