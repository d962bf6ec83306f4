"""axe-core finds nothing serious on our pages, whatever the theme and the width; each look is kept as a picture."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.shop import Shop
from tests.browser.visitor import NARROW, WIDE, Visitor


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nobody_is_kept_out(
    shop: Shop, visit: Callable[..., Visitor], axe: str, dark: bool, size: tuple[int, int]
) -> None:
    retried, running, failed = shop.fill()
    visitor = visit(dark=dark, size=size)
    pages = {
        "overview": "overview/",
        "jobs": "job/",
        "archived-jobs": "archivedjob/",
        "retried-job": f"job/{retried}/change/",
        "running-job": f"job/{running}/change/",
        "failed-job": f"archivedjob/{failed}/change/",
    }
    found: dict[str, list[str]] = {}
    for name, path in pages.items():
        visitor.see(path)
        visitor.keep(f"look-{name}-{'dark' if dark else 'light'}-{'wide' if size == WIDE else 'narrow'}")
        if barriers := visitor.barriers(axe):
            found[name] = barriers
    assert found == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_empty_pages_keep_nobody_out(shop: Shop, visit: Callable[..., Visitor], axe: str, dark: bool) -> None:
    visitor = visit(dark=dark)
    found = {path: visitor.see(path) and visitor.barriers(axe) for path in ("overview/", "job/", "archivedjob/")}
    assert found == {path: [] for path in found}


def test_the_check_notices_a_barrier(shop: Shop, visit: Callable[..., Visitor], axe: str) -> None:
    visitor = visit()
    page = visitor.see("overview/")
    page.evaluate("document.querySelector('svg[role=img]')?.removeAttribute('aria-label')")
    page.evaluate("document.querySelector('#content-main').insertAdjacentHTML('beforeend', '<img src=\"/x\">')")
    assert any(barrier.startswith("image-alt") for barrier in visitor.barriers(axe))
