"""The pages of one job, as a browser shows them."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.shop import Shop
from tests.browser.visitor import Visitor


def test_a_job_is_shown_with_its_state_payload_handler_and_attempts(shop: Shop, visit: Callable[..., Visitor]) -> None:
    retried, *_ = shop.fill()
    page = visit().see(f"job/{retried}/change/")
    said = page.locator("#content").inner_text()
    assert "retrying" in said
    assert "a@b.c" in page.get_by_role("region", name="Payload").inner_text()
    assert "shop.jobs.take_payment" in page.get_by_role("region", name="Handler").inner_text()
    attempts = page.get_by_role("region", name="Attempts")
    assert attempts.get_by_role("article").count() == 2
    assert "ProviderBusy: try again in 2 s" in attempts.inner_text()


def test_a_running_job_says_so(shop: Shop, visit: Callable[..., Visitor]) -> None:
    _, running, _ = shop.fill()
    said = visit().see(f"job/{running}/change/").locator("#content").inner_text()
    assert "runs now, for" in said
    assert "at proletarian-1" in said


def test_a_job_that_finished_since_the_list_was_made_is_found_in_the_archive(
    shop: Shop, visit: Callable[..., Visitor]
) -> None:
    *_, failed = shop.fill()
    page = visit().see(f"job/{failed}/change/")
    assert page.url.endswith(f"/archivedjob/{failed}/change/")
    assert "is in the archive now" in page.locator(".messagelist").inner_text()
