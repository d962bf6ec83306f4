"""`/metrics`: who may read it, and what prometheus-client's own parser reads there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.db import connection
from django.http import HttpResponse
from django.test import Client, override_settings
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from django_proletarian import NewJob, enqueue, enqueue_many, metrics
from tests.docs.pages import REPOSITORY, blocks

pytestmark = pytest.mark.django_db

TOKEN = "0123456789abcdef"
ADDRESS = "/proletarian/metrics"


@pytest.fixture
def settings_with_token() -> Any:
    with override_settings(PROLETARIAN={"METRICS_TOKEN": TOKEN, "QUEUES": ["mail", "reports"]}):
        yield


def archive(
    seconds: float, number: int = 1, *, ago: float = 0, status: str = "success", job_type: str = "shop/mail"
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), ':mail', %s, '1', 1, at, at, %s, "
            "at + %s * interval '1 second' FROM generate_series(1, %s), "
            "(SELECT now() - %s * interval '1 second' AS at) AS began",
            [f":{job_type}", f":{status}", seconds, number, ago + seconds],
        )


def get(token: str = TOKEN) -> HttpResponse:
    return Client().get(ADDRESS, headers={"Authorization": f"Bearer {token}"})


def scrape() -> dict[tuple[str, ...], float]:
    """Every sample: its name and its labels' values, in the order of the labels' names."""
    response = get()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def test_they_are_off_until_a_token_is_set(client: Client) -> None:
    assert get().status_code == 404


def test_only_who_knows_the_token_may_read_them(settings_with_token: None) -> None:
    assert Client().get(ADDRESS).status_code == 401
    for token in ("", "0123456789abcdeF", TOKEN + " ", "é"):
        assert get(token).status_code == 401
    assert get()["Cache-Control"].startswith("max-age=0")
    assert Client().post(ADDRESS).status_code == 405


def test_jobs_in_the_queue_are_told_by_queue_and_state(settings_with_token: None) -> None:
    enqueue_many(
        [NewJob("a", queue="mail")] * 3 + [NewJob("a", queue='odd "name"\n', process_in=timedelta(minutes=1))] * 2
    )
    found = scrape()
    assert found["proletarian_jobs", "mail", "due"] == 3
    assert found["proletarian_jobs", "mail", "scheduled"] == 0
    assert found["proletarian_jobs", "reports", "due"] == 0
    assert found["proletarian_jobs", 'odd "name"\n', "scheduled"] == 2
    assert found["proletarian_oldest_due_job_age_seconds", "mail"] >= 0
    assert (found["proletarian_workers",], found["proletarian_running_jobs",]) == (0, 0)


def test_what_finished_in_the_window_is_told_by_type_and_status_with_a_histogram(settings_with_token: None) -> None:
    archive(0.05, 3)
    archive(2, 2)
    archive(5000, 1)
    archive(0.001, 4, status="failure", job_type="shop/report")
    archive(1, 9, ago=400)  # before the window
    found = scrape()
    mail, name = ("shop/mail", "success"), "proletarian_recent_job_duration_seconds"
    assert found["proletarian_recent_jobs", *mail] == 6
    assert found["proletarian_recent_jobs", "shop/report", "failure"] == 4
    assert found["proletarian_recent_window_seconds",] == 300
    # Labels in the order of their names: job_type, le, status. An edge counts what equals it.
    at_most = {
        edge: found[f"{name}_bucket", "shop/mail", edge, "success"]
        for edge in ("0.025", "0.05", "2.5", "3600.0", "+Inf")
    }
    assert at_most == {"0.025": 0, "0.05": 3, "2.5": 5, "3600.0": 5, "+Inf": 6}
    assert found[f"{name}_gcount", *mail] == 6
    assert found[f"{name}_gsum", *mail] == pytest.approx(5004.15)


def test_where_too_much_finished_the_window_is_shorter_and_says_so(
    settings_with_token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_RECENT", 10)
    for ago in range(1, 21):
        archive(0, ago=ago)
    found = scrape()
    assert found["proletarian_recent_jobs", "shop/mail", "success"] == 10
    assert found["proletarian_recent_window_seconds",] == pytest.approx(10, abs=0.5)


def test_pruning_turns_nothing_back_that_a_counter_must_not(settings_with_token: None) -> None:
    archive(0, 5)
    kinds = {family.name: family.type for family in text_string_to_metric_families(get().content.decode())}
    assert set(kinds.values()) == {"gauge", "gaugehistogram"}


def test_no_payload_and_no_id_is_told(settings_with_token: None) -> None:
    job_id = enqueue("a", {"email": "someone@example.com"}, queue="mail")
    page = get().content.decode()
    assert "someone" not in page
    assert str(job_id) not in page


# -- Alerts ----------------------------------------------------------------------------------------------------------

SELECTOR = re.compile(r"(proletarian_\w+)(?:\{([^}]*)\})?")


def alerts() -> list[dict[str, Any]]:
    """The rules that the page about monitoring shows."""
    [shown] = blocks(REPOSITORY / "docs" / "how-to" / "monitoring.md", "yaml")
    [group] = yaml.safe_load(shown.text)["groups"]
    return list(group["rules"])


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_is_told(rule: dict[str, Any], settings_with_token: None) -> None:
    archive(1, status="failure", job_type="shop/report")
    enqueue("shop/mail", queue="mail")
    families = text_string_to_metric_families(get().content.decode())
    samples = [sample for family in families for sample in family.samples]
    selectors = SELECTOR.findall(rule["expr"])
    assert selectors
    for name, wanted in selectors:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', wanted))
        assert any(sample.name == name and labels.items() <= sample.labels.items() for sample in samples), name
    said = " ".join(rule.get("annotations", {}).values())
    for label in re.findall(r"\$labels\.(\w+)", said):
        assert any(sample.name == selectors[0][0] and label in sample.labels for sample in samples), label
