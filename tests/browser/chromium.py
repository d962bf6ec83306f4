"""The system's Chromium. Playwright's own browsers are not used: downloading one is for a person to decide."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it may be missing: then the tests are skipped
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox since tests may run as root, and without anything that calls home.
OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


class NoChromium(Exception):
    """There is nothing to look with; the message says what is missing and how to get it."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Raises NoChromium. While it is open, its event loop keeps Django's ORM from this thread."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoChromium("no Playwright: pip install playwright") from None
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise NoChromium(f"no Chromium: none of {', '.join(NAMES)} is in the PATH (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        yield browser
        browser.close()
