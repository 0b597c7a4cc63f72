"""Which runs to make: plans of local steps and rates for a goal, by pilot runs or by theory, and sweeps.

>>> import fedgauge as fg
>>> from fedgauge_planning import plan, PlanOptions
>>> federation = fg.random_quadratics(4, 3, hessian_spread=0.0)
>>> choices = {"gamma": [0.1], "local_steps": [1, 16]}
>>> made = plan(
...     federation, fg.fedavg(gamma=0.1), goal="grad2=1e-6", cost="fixed=1,step=0.001", over=choices,
...     options=PlanOptions(jobs=1))
>>> made.choice.I
16
"""

from __future__ import annotations

import lazy_loader

# As in fedgauge: a public name is imported when it is first used, as the stub file says.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
