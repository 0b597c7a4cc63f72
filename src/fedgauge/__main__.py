"""``python -m fedgauge`` is the ``fedgauge`` command."""

import sys

from fedgauge.cli import main

sys.exit(main())
