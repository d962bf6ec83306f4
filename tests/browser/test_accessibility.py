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


@pytest.mark.parametrize("page", ["jobattempt", "worker"])
def test_nobody_is_kept_out_of_smaller_lists(shop: Shop, visit: Callable[..., Visitor], axe: str, page: str) -> None:
    shop.fill()
    nobody_is_kept_out(visit(), axe, f"{page}/", page, looks=["light-wide", "dark-narrow"])


@pytest.mark.parametrize("page", ["overview", "job", "archivedjob"])
def test_nobody_is_kept_out_where_there_is_nothing(
    shop: Shop, visit: Callable[..., Visitor], axe: str, page: str
) -> None:
    nobody_is_kept_out(visit(), axe, f"{page}/", f"{page}-empty", looks=["light-wide"])


def test_nobody_is_kept_out_of_a_job_or_an_action(shop: Shop, visit: Callable[..., Visitor], axe: str) -> None:
    retried, _, failed = shop.fill()
    visitor = visit()
    nobody_is_kept_out(visitor, axe, f"job/{retried}/change/", "job-detail")
    nobody_is_kept_out(visitor, axe, f"archivedjob/{failed}/change/", "archivedjob-detail", looks=["light-wide"])
    visitor.see(f"job/{retried}/change/")
    visitor.page.get_by_role("button", name="Move to another queue…").click()
    found: dict[str, list[str]] = {}
    for look in ("light-wide", "dark-narrow"):
        dark, size = LOOKS[look]
        visitor.looks(dark=dark, size=size)
        visitor.keep(f"look-action-{look}", whole=True)
        found[look] = visitor.barriers(axe)
    assert found == {look: [] for look in found}


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
