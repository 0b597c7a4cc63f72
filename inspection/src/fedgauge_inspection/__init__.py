"""Saved models of one round compared: how far the clients agree, and which layers and clients stand out.

>>> import torch
>>> from fedgauge_inspection import inspect_models
>>> found = inspect_models(torch.zeros(2), [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])])
>>> found.alignment
0.5
"""

from __future__ import annotations

import lazy_loader

# As in fedgauge: a public name is imported when it is first used, as the stub file says.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
