"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# A shared machine stalls now and then, so no example has a deadline; in CI the examples are the same every time.
settings.register_profile("fedgauge", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fedgauge")
