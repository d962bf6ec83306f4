"""The overview page, as a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.browser.shop import Shop
from tests.browser.visitor import Visitor


def test_an_order_goes_from_the_shop_through_the_queue_to_the_overview(
    shop: Shop, visit: Callable[..., Visitor]
) -> None:
    visitor = visit()
    page = visitor.page
    page.goto("/orders/new/")
    page.get_by_label("Email").fill("someone@example.com")
    page.get_by_label("Product").select_option(index=1)
    page.get_by_role("button", name="Order").click()
    page.get_by_text("Thank you!").wait_for()
    visitor.see("overview/")
    queue = page.get_by_role("article", name="proletarian/default")
    assert queue.locator("dd").all_inner_texts()[0] == "2"
    assert "nothing finished" in queue.inner_text()

    shop.run("proletarian_worker", "--drain")
    page.get_by_role("link", name="Look again").click()
    # The payment's provider may ask to come again later.
    queue.get_by_role("img", name=re.compile("Last hour: [12] succeeded, 0 failed")).wait_for()


def test_a_queues_chart_can_be_read_in_numbers_by_keyboard(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    page = visit().see("overview/")
    reports = page.get_by_role("article", name="shop/reports")
    day = reports.get_by_role("img", name="shop/reports, Last day: 4 succeeded, 0 failed, at most 4 in half an hour")
    assert day.is_visible()
    numbers = reports.get_by_text("In numbers")
    assert reports.get_by_role("table").count() == 0
    numbers.first.press("Enter")
    table = reports.get_by_role("table", name="shop/reports, Last day")
    assert [cell.strip() for cell in table.get_by_role("cell").all_inner_texts()] == ["4", "0"]


def test_failures_of_a_type_are_a_click_away(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    visitor = visit()
    page = visitor.see("overview/")
    page.get_by_role("row", name="shop.jobs/take_payment").get_by_role("link").click()
    page.wait_for_url("**/archivedjob/**")
    visitor.expect_rows(3)


def test_a_queues_name_leads_to_its_jobs(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    visitor = visit()
    page = visitor.see("overview/")
    page.get_by_role("link", name="shop/reports").first.click()
    page.wait_for_url("**/job/**")
    visitor.expect_rows(1)


def test_a_worker_leads_to_the_job_that_it_runs(shop: Shop, visit: Callable[..., Visitor]) -> None:
    _, running, _ = shop.fill()
    page = visit().see("overview/")
    alive = page.get_by_role("article", name="proletarian-1")
    assert "Alive" in alive.inner_text()
    assert "Dead" in page.get_by_role("article", name="proletarian-2").inner_text()
    address = alive.get_by_role("link", name="shop.jobs/sales_report").get_attribute("href")
    assert address == f"/admin/django_proletarian/job/{running}/change/"


def test_it_works_without_javascript(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.fill()
    page = visit(java_script=False).see("overview/")
    assert page.get_by_role("img", name="proletarian/default, Last hour").is_visible()
    page.get_by_text("In numbers").first.click()
    assert page.get_by_role("table", name="proletarian/default, Last hour").is_visible()


def test_an_empty_queue_looks_right_too(shop: Shop, visit: Callable[..., Visitor]) -> None:
    page = visit().see("overview/")
    said = page.locator("#content-main").inner_text()
    assert "nothing finished" in said
    assert "No job failed." in said
    assert "No worker is at work." in said
