"""One Chromium for all tests of pages, and the explorer as a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from fedgauge.cli import main

# A page under test needs no graphics, no sandbox of its own and nothing from the network.
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail(
            "The tests of pages need Chromium; install it with 'apt-get install chromium' or run 'make chromium'.",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as a file."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    assert main(["explore", "--out", str(path)]) == 0
    return path


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a file or an address; whatever the page then requests or complains about fails the test."""
    contexts = []
    unwanted: list[str] = []

    def opened(where: Path | str, **settings: Any) -> Page:
        address = where.as_uri() if isinstance(where, Path) else where
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        page = context.new_page()
        own = address.partition("#")[0]

        def look(url: str) -> None:
            if url.partition("#")[0] != own and not url.startswith("data:"):
                unwanted.append(f"requested {url}")

        page.on("request", lambda request: look(request.url))
        page.on("console", lambda message: unwanted.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: unwanted.append(f"error: {error}"))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert unwanted == []
