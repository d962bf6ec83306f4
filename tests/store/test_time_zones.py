"""Sessions in other time zones, and in one that changes to or from summer time: an instant stays the instant it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from django_proletarian import RetryStrategy, conf, enqueue, job_handler
from django_proletarian.connection import ClaimConnection
from django_proletarian.worker import process_next_job
from tests.conftest import rows

OSLO = ZoneInfo("Europe/Oslo")

# Oslo goes to summer time on 29 March 2026 at 02:00 local time, and back on 25 October 2026 at 03:00.
ZONES_AND_MOMENTS = [
    pytest.param("Asia/Kolkata", datetime(2026, 1, 31, 23, 59, tzinfo=UTC), id="a server half an hour off"),
    pytest.param("Europe/Oslo", datetime(2026, 3, 28, 12, 0, tzinfo=OSLO), id="the day before summer time"),
    pytest.param("Europe/Oslo", datetime(2026, 3, 29, 1, 59, 59, tzinfo=OSLO), id="the second before summer time"),
    pytest.param("Europe/Oslo", datetime(2026, 10, 24, 12, 0, tzinfo=OSLO), id="the day before winter time"),
    pytest.param("Europe/Oslo", datetime(2026, 10, 25, 2, 30, tzinfo=OSLO), id="02:30 for the first time"),
    pytest.param("Europe/Oslo", datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=OSLO), id="02:30 for the second time"),
]
A_TICK = timedelta(microseconds=1)

pytestmark = pytest.mark.parametrize(("zone", "moment"), ZONES_AND_MOMENTS)


def set_zone(claim: ClaimConnection, zone: str) -> None:
    """Put this thread's two sessions into `zone`, as a server's or a role's setting would."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('timezone', %s, false)", [zone])
    claim.send(f"SET timezone = '{zone}'")


def run_at(claim: ClaimConnection, moment: datetime) -> bool | None:
    options = conf.worker_options(database="default", queues=None, clock=lambda: moment)
    return process_next_job(options, claim, "proletarian/default")


def process_at() -> datetime:
    """When the one job in the queue is due, read in a way that no session's time zone has a part in."""
    (row,) = rows("proletarian.job", "extract(epoch FROM process_at)::float8 AS seconds")
    return datetime.fromtimestamp(row["seconds"], UTC)


def test_a_job_for_an_instant_runs_at_that_instant(claim: ClaimConnection, zone: str, moment: datetime) -> None:
    job_handler("tests/pass")(lambda payload: None)
    moment = moment.astimezone(UTC) + timedelta(days=3650)
    set_zone(claim, zone)
    enqueue("tests/pass", process_at=moment.astimezone(ZoneInfo(zone)))

    assert process_at() == moment
    assert run_at(claim, moment - A_TICK) is None
    assert run_at(claim, moment) is True


def test_a_delay_of_a_day_is_24_hours(claim: ClaimConnection, settings: Any, zone: str, moment: datetime) -> None:
    moment = moment.astimezone(UTC)
    settings.PROLETARIAN = {"CLOCK": lambda: moment}
    set_zone(claim, zone)
    enqueue("tests/pass", process_in=timedelta(days=1))

    assert process_at() == moment + timedelta(hours=24)


def test_a_retry_delay_of_a_day_is_24_hours(claim: ClaimConnection, zone: str, moment: datetime) -> None:
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1, delays=[timedelta(days=1)]))(
        lambda payload: 1 / 0
    )
    moment = moment.astimezone(UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job "
            "VALUES (gen_random_uuid(), ':proletarian/default', ':tests/fail', '1', 0, %s, %s)",
            [moment, moment],
        )
    set_zone(claim, zone)

    assert run_at(claim, moment) is True

    assert process_at() == moment + timedelta(hours=24)
    assert run_at(claim, moment + timedelta(hours=24) - A_TICK) is None
    assert run_at(claim, moment + timedelta(hours=24)) is True
    assert rows("proletarian.job") == []
