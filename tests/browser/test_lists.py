"""The lists of jobs and archived jobs and their filters, as a browser shows them."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.shop import Shop
from tests.browser.visitor import Visitor


def test_jobs_are_filtered_by_queue(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    visitor = visit()
    page = visitor.see("job/")
    visitor.expect_rows(12)
    page.locator("#changelist-filter").get_by_role("link", name="shop/reports").click()
    visitor.expect_rows(1)


def test_jobs_are_filtered_by_type(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    visitor = visit()
    page = visitor.see("job/")
    page.locator("#changelist-filter").get_by_role("link", name="shop.jobs/take_payment").click()
    visitor.expect_rows(1)


def test_archived_jobs_are_filtered_by_status(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    visitor = visit()
    page = visitor.see("archivedjob/")
    page.locator("#changelist-filter").get_by_role("link", name="failure", exact=True).click()
    visitor.expect_rows(3)
    assert page.locator("#result_list").get_by_text("failure").count() >= 3


def test_a_job_is_found_by_its_id(shop: Shop, visit: Callable[..., Visitor]) -> None:
    retried, *_ = shop.fill()
    visitor = visit()
    page = visitor.see("job/")
    page.locator("#searchbar").fill(str(retried))
    page.locator("#searchbar").press("Enter")
    visitor.expect_rows(1)


def test_a_viewer_sees_everything_and_a_stranger_nothing(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    viewer, stranger = visit("viewer"), visit("stranger")
    for path in ["overview/", "job/", "archivedjob/"]:
        viewer.see(path)
        refused = stranger.page.goto(f"/admin/django_proletarian/{path}")
        assert refused is not None
        assert refused.status == 403
    stranger.page.goto("/admin/")
    assert "Overview" not in stranger.page.locator("#content").inner_text()
