"""What people do to jobs in the admin, from a list and from a job's page, and what a job's page shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.shop import Shop
from tests.browser.visitor import Visitor


def act(visitor: Visitor, action: str) -> None:
    """Choose every row of the list and an action, and confirm it."""
    page = visitor.page
    page.locator("#action-toggle").check()
    page.get_by_label("Action:").select_option(label=action)
    page.locator("button[name=index]").click()  # "Go", or "Run" since Django 6.1
    page.get_by_role("button", name=f"Yes: {action}").click()


def said(visitor: Visitor) -> list[str]:
    visitor.page.locator(".messagelist li").first.wait_for()
    return [text.strip() for text in visitor.page.locator(".messagelist li").all_inner_texts()]


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("Run now", "3 jobs are due now."),
        ("Cancel", "3 jobs were cancelled."),
    ],
)
def test_jobs_are_acted_on_from_a_filtered_list(
    shop: Shop, visit: Callable[..., Visitor], action: str, outcome: str
) -> None:
    shop.enqueue("shop.jobs/sales_report", queue="shop/reports", due_in=3600, number=3)
    shop.enqueue(due_in=3600)
    visitor = visit()
    visitor.see("job/?queue=shop/reports")
    act(visitor, action)
    assert said(visitor) == [outcome]
    assert "queue=shop" in visitor.page.url
    visitor.expect_rows(3 if action == "Run now" else 0)
    assert shop.sql("SELECT count(*) FROM proletarian.job WHERE process_at > now()") == [(1,)]


def test_a_job_is_rescheduled_and_moved_from_its_page(shop: Shop, visit: Callable[..., Visitor]) -> None:
    [job_id] = shop.enqueue(due_in=3600)
    visitor = visit()
    page = visitor.see(f"job/{job_id}/change/")
    page.get_by_role("button", name="Reschedule…").click()
    page.get_by_label("Next run").fill("2070-07-14T12:30:00")
    page.get_by_role("button", name="Yes: Reschedule").click()
    assert said(visitor) == ["1 job was rescheduled."]
    page = visitor.see(f"job/{job_id}/change/")
    page.get_by_role("button", name="Move to another queue…").click()
    page.get_by_label("Queue").fill("shop/reports")
    page.get_by_label("Priority").fill("5")
    page.get_by_role("button", name="Yes: Move to another queue").click()
    assert said(visitor) == ["1 job was moved."]
    rows = shop.sql("SELECT queue, extract(year FROM process_at)::int FROM proletarian.job")
    assert rows == [(":shop/reports+5", 2070)]


def test_all_failures_that_a_filter_finds_run_again(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.archive("failure", number=120)
    shop.archive(number=3)
    visitor = visit()
    page = visitor.see("archivedjob/?status=failure")
    page.locator("#action-toggle").check()
    page.get_by_text("Select all 120 archived jobs").click()
    page.get_by_label("Action:").select_option(label="Run again")
    page.locator("button[name=index]").click()  # "Go", or "Run" since Django 6.1
    page.get_by_role("button", name="Yes: Run again").click()
    assert said(visitor) == ["120 jobs are back in their queues."]
    assert shop.sql("SELECT status, count(*) FROM proletarian.archived_job GROUP BY 1") == [(":success", 3)]


def test_a_running_job_is_left_alone_and_the_page_does_not_wait(shop: Shop, visit: Callable[..., Visitor]) -> None:
    [job_id] = shop.enqueue()
    visitor = visit()
    with shop.connect() as worker:
        worker.execute("SELECT 1 FROM proletarian.job FOR UPDATE")
        page = visitor.see("job/?state=running")
        visitor.expect_rows(1)
        page.locator("#result_list th a").first.click()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Yes: Cancel").click()
        assert said(visitor) == [f"1 job runs now and was left alone: {job_id}"]
    assert shop.sql("SELECT count(*) FROM proletarian.job") == [(1,)]


def test_a_copy_is_run_from_an_archived_jobs_page_without_scripts(shop: Shop, visit: Callable[..., Visitor]) -> None:
    _, _, failed = shop.fill()
    before = shop.sql("SELECT count(*) FROM proletarian.job")[0][0]
    visitor = visit(java_script=False)
    page = visitor.see(f"archivedjob/{failed}/change/")
    page.get_by_role("button", name="Run a copy…").click()
    page.get_by_role("button", name="Yes: Run a copy").click()
    assert said(visitor) == ["1 copy is in the queue."]
    assert shop.sql("SELECT count(*) FROM proletarian.job") == [(before + 1,)]


def test_a_jobs_page_folds_tracebacks_and_raw_text_and_a_viewer_has_no_actions(
    shop: Shop, visit: Callable[..., Visitor]
) -> None:
    retried, *_ = shop.fill()
    visitor = visit("viewer")
    page = visitor.see(f"job/{retried}/change/")
    assert page.get_by_role("button", name="Run now…").count() == 0
    assert '{:order-id 42, :email "a@b.c"}' in page.locator("#content").inner_text()
    assert not page.get_by_text("reference = provider.charge").first.is_visible()
    page.get_by_text("Traceback", exact=True).first.click()
    assert page.get_by_text("reference = provider.charge").first.is_visible()
    assert not page.get_by_text('["^ ","~:order-id",42').is_visible()
    page.get_by_text("As it is stored").click()
    assert page.get_by_text('["^ ","~:order-id",42').is_visible()


def test_jobs_are_searched_and_gone_down_to_by_date(shop: Shop, visit: Callable[..., Visitor]) -> None:
    shop.enqueue(number=2)
    shop.enqueue(payload='["^ ","~:order-id",4711]')
    visitor = visit()
    page = visitor.see("job/?queue=proletarian/default")
    page.locator("#searchbar").fill("4711")
    page.locator("#searchbar").press("Enter")
    visitor.expect_rows(1)
    shop.archive(minutes=3 * 24 * 60)
    shop.archive(minutes=400 * 24 * 60, number=2)
    page = visitor.see("archivedjob/")
    by_date = page.locator("#changelist-filter details", has_text="finished")
    by_date.get_by_role("link").nth(1).click()  # the first year that has any
    visitor.expect_rows(2)
