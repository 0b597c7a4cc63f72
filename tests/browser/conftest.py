"""One Chromium for all tests of pages, and the explorer as a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

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
_WIDE = {"width": 1280, "height": 900}
_STARTED: list[Browser] = []


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail(
            "The tests of pages need Chromium; install it with 'apt-get install chromium' or run 'make chromium'.",
            pytrace=False,
        )
    if _STARTED:  # by the tests of another directory in this process, where Playwright starts only once
        yield _STARTED[0]
        return
    with sync_playwright() as playwright:
        _STARTED.append(playwright.chromium.launch(executable_path=path, args=_ARGUMENTS))
        yield _STARTED[0]
        _STARTED.pop().close()


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as a file."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    assert main(["theory", "explore", "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def shared(browser: Browser) -> Page:
    """A page for every test in turn, because a new one takes a second of a core before it shows anything."""
    return browser.new_page()


@pytest.fixture
def visit(browser: Browser, shared: Page) -> Iterator[Callable[..., Page]]:
    """Open a file or an address; whatever the page then requests or complains about fails the test.

    The first visit without settings of its own is to the shared page, which keeps nothing of the test before: our pages
    store nothing, and its size, colours and pointer are put back.
    """
    free, leave = [shared], ExitStack()
    unwanted: list[str] = []

    def opened(where: Path | str, viewport: Any = _WIDE, color_scheme: Any = "light", **settings: Any) -> Page:
        address = where.as_uri() if isinstance(where, Path) else where
        if settings or not free:
            page = leave.enter_context(browser.new_context(**settings)).new_page()
        else:
            page = free.pop()
            page.goto("about:blank")
            page.mouse.move(0, 0)
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme)
        own = address.partition("#")[0]

        def look(request: Request) -> None:
            if request.url.partition("#")[0] != own and not request.url.startswith("data:"):
                unwanted.append(f"requested {request.url}")

        for event, heard in (
            ("request", look),
            ("console", lambda message: unwanted.append(f"console: {message.text}")),
            ("pageerror", lambda error: unwanted.append(f"error: {error}")),
        ):
            page.on(event, heard)  # type: ignore[call-overload]  # one of its words
            leave.callback(page.remove_listener, event, heard)
        page.goto(address)
        return page

    with leave:
        yield opened
    assert unwanted == []
