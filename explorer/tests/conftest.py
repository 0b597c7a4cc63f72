"""The explorer's page in the browser that all tests of pages share."""

from tests.browser.conftest import browser, explorer, shared, visit

__all__ = ["browser", "explorer", "shared", "visit"]
