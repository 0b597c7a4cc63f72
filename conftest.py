"""Settings that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

# A shared machine stalls now and then, so no example has a deadline; in CI the examples are the same every time.
settings.register_profile("fedgauge", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fedgauge")


# Run by a test in a process of its own, as collecting its doctests would import torchft in all; and what a test adds to
# a copy of the sources.
collect_ignore = [
    "tests/algorithms/torchft_peer.py",
    "tests/algorithms/torchft_fragments.py",
    "tests/additions",
]
# NVFlare has an environment of its own: make test-nvflare.
if find_spec("nvflare") is None:
    collect_ignore.append("integrations/nvflare")

# Tests of real servers, of the documentation in a browser and of the wheel are the longest, and wait most of the time.
_FLOWER = "integrations/flower/tests/"
_FIRST = (f"{_FLOWER}test_servers.py", f"{_FLOWER}test_template.py", "tests/browser", "tests/packaging")


def pytest_collection() -> None:
    """Import the command before the modules of other distributions that it loads, and that import parts of it."""
    import fedgauge.cli  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that others run beside them and no process waits for them at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch with one thread: two that wait for each other on a busy machine take many times as long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
