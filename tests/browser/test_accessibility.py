"""axe-core finds nothing serious on our pages, whatever the theme and the width; each look is kept as a picture."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.shop import Shop
from tests.browser.visitor import NARROW, WIDE, Visitor

LOOKS = {
    "light-wide": (False, WIDE),
    "dark-wide": (True, WIDE),
    "dark-narrow": (True, NARROW),
    "light-narrow": (False, NARROW),
}


@pytest.mark.parametrize("page", ["overview", "job", "archivedjob"])
def test_nobody_is_kept_out(shop: Shop, visit: Callable[..., Visitor], axe: str, page: str) -> None:
    shop.fill()
    nobody_is_kept_out(visit(), axe, f"{page}/", page)


@pytest.mark.parametrize("page", ["overview", "job", "archivedjob"])
def test_nobody_is_kept_out_where_there_is_nothing(
    shop: Shop, visit: Callable[..., Visitor], axe: str, page: str
) -> None:
    nobody_is_kept_out(visit(), axe, f"{page}/", f"{page}-empty", looks=["light-wide"])


def nobody_is_kept_out(visitor: Visitor, axe: str, path: str, name: str, looks: list[str] | None = None) -> None:
    """See a page in all looks, and keep each as a picture under a name."""
    visitor.see(path)
    found: dict[str, list[str]] = {}
    for look in looks or LOOKS:
        dark, size = LOOKS[look]
        visitor.looks(dark=dark, size=size)
        visitor.keep(f"look-{name}-{look}", whole=True)
        found[look] = visitor.barriers(axe)
        # A table scrolls by itself; the page must not.
        if visitor.page.evaluate("document.documentElement.scrollWidth") > size[0]:
            found[look].append("wider than the screen")
    assert found == {look: [] for look in found}


def test_the_check_notices_a_barrier(shop: Shop, visit: Callable[..., Visitor], axe: str) -> None:
    visitor = visit()
    page = visitor.see("overview/")
    page.evaluate("document.querySelector('#content-main').insertAdjacentHTML('beforeend', '<img src=\"/x\">')")
    assert any(barrier.startswith("image-alt") for barrier in visitor.barriers(axe))
