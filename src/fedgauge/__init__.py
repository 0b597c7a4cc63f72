"""How heterogeneous is my federation, and how many local steps can it afford?

>>> import fedgauge as fg
>>> federation = fg.random_quadratics(num_workers=10, dim=20, hessian_spread=0.1, seed=0)
>>> trace = fg.simulate(federation, fg.fedavg(gamma=0.05), local_steps=10, rounds=100)
>>> bool(trace.losses[-1] < trace.losses[0])
True
"""

from __future__ import annotations

from importlib.metadata import version

import lazy_loader

# What needs no torch does not wait for it: a public name is imported when it is first used, as the stub file says.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("fedgauge")
