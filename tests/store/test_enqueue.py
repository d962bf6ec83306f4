"""`enqueue`: what row it makes, and that it fails before any SQL."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import OperationalError, ProgrammingError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import override_settings

from django_proletarian import (
    DuplicateJob,
    EnqueueError,
    NewJob,
    PayloadEncodeError,
    PlainName,
    aenqueue,
    aenqueue_many,
    enqueue,
    enqueue_many,
    inserts,
    job_handler,
)
from django_proletarian.connection import ClaimConnection
from django_proletarian.inserts import PREPARED_AFTER
from django_proletarian.tables import Tables
from tests.conftest import rows
from tests.live.processes import url_of

NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def now() -> datetime:
    return NOW


at_a_fixed_time = override_settings(PROLETARIAN={"CLOCK": now})


@pytest.mark.django_db
class TestTheRow:
    @at_a_fixed_time
    def test_holds_what_the_original_would_store(self) -> None:
        # Source: job_test.clj, enqueue!-test.
        job_id = enqueue("foo", {"email": "a@b.c", "id": 42})
        assert rows("proletarian.job") == [
            {
                "job_id": job_id,
                "queue": ":proletarian/default",
                "job_type": ":foo",
                "payload": '["^ ","~:email","a@b.c","~:id",42]',
                "attempts": 0,
                "enqueued_at": NOW,
                "process_at": NOW,
            }
        ]

    # Source: job_test.clj, ->process-at-test.
    @pytest.mark.parametrize(
        ("process_at", "process_in", "due"),
        [
            pytest.param(None, None, NOW, id="now without either"),
            pytest.param(NOW + MINUTE, None, NOW + MINUTE, id="process_at if it is later"),
            pytest.param(NOW - MINUTE, None, NOW, id="now if process_at is past"),
            pytest.param(None, MINUTE, NOW + MINUTE, id="process_in from now"),
            pytest.param(None, -MINUTE, NOW, id="now if process_in is negative"),
            pytest.param(NOW + MINUTE, 2 * MINUTE, NOW + MINUTE, id="process_at wins over process_in"),
            pytest.param(NOW - MINUTE, 2 * MINUTE, NOW, id="process_at wins even when it is past"),
            pytest.param(None, timedelta.min, NOW, id="now for the most negative process_in"),
            pytest.param(None, timedelta(days=1), NOW + timedelta(hours=24), id="a day is 24 hours across DST"),
            pytest.param(None, timedelta(microseconds=1), NOW + timedelta(microseconds=1), id="microseconds count"),
            pytest.param(datetime(1, 1, 1, tzinfo=UTC), None, NOW, id="the first year"),
            pytest.param(datetime.max.replace(tzinfo=UTC), None, datetime.max.replace(tzinfo=UTC), id="the last year"),
            pytest.param(
                datetime(2026, 3, 29, 9, tzinfo=timezone(timedelta(hours=5, minutes=30))),
                None,
                datetime(2026, 3, 29, 3, 30, tzinfo=UTC),
                id="an instant of another zone",
            ),
        ],
    )
    @at_a_fixed_time
    def test_is_due(self, process_at: datetime | None, process_in: timedelta | None, due: datetime) -> None:
        with connection.cursor() as cursor:
            # The night in which Oslo goes to summer time, half an hour before.
            cursor.execute("SET TIME ZONE 'Europe/Oslo'")
            enqueue("foo", process_at=process_at, process_in=process_in)
            enqueue_many([NewJob("foo", process_at=process_at, process_in=process_in)])
            # Django takes every date that it reads for UTC.
            cursor.execute("SET TIME ZONE 'UTC'")
        assert [(row["enqueued_at"], row["process_at"]) for row in rows("proletarian.job")] == [(NOW, due)] * 2

    def test_has_the_databases_time(self) -> None:
        enqueue("foo")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT enqueued_at BETWEEN now() AND clock_timestamp(), enqueued_at = process_at FROM proletarian.job"
            )
            assert cursor.fetchone() == (True, True)

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("a", ":a"),
            ("a/b/c", ":a/b/c"),
            (":a/b", ":a/b"),
            (PlainName("send email"), "send email"),
            (PlainName(""), ""),
        ],
    )
    def test_has_its_names_stored_as_keywords_or_as_they_are(self, name: str, stored: str) -> None:
        enqueue(name, queue=name)
        [row] = rows("proletarian.job")
        assert (row["queue"], row["job_type"]) == (stored, stored)

    def test_has_the_handlers_queue_unless_one_is_given(self) -> None:
        @job_handler("shop/mail", queue="mail")
        def mail(payload: object) -> None: ...

        mail.enqueue()
        enqueue(mail)
        enqueue("shop/mail")
        enqueue("shop/mail", queue="elsewhere")
        assert [row["queue"] for row in rows("proletarian.job")] == [":mail", ":mail", ":mail", ":elsewhere"]

    def test_has_the_given_id_as_uuid_or_text(self) -> None:
        first, second = uuid.uuid4(), uuid.uuid4()
        assert [enqueue("foo", job_id=first), enqueue("foo", job_id=str(second))] == [first, second]
        assert {row["job_id"] for row in rows("proletarian.job")} == {first, second}

    @override_settings(PROLETARIAN={"JOB_ID_STRATEGY": "django_proletarian.ids.uuid7"})
    def test_has_an_id_of_the_configured_strategy(self) -> None:
        ids = [enqueue("foo"), *enqueue_many([("foo", 1), ("foo", 2)])]
        assert {job_id.version for job_id in ids} == {7}

    @override_settings(USE_TZ=False, TIME_ZONE="Europe/Oslo")
    def test_is_due_at_local_time_without_time_zone_support(self) -> None:
        enqueue("foo", process_at=datetime(2099, 7, 1, 12, 0))
        with connection.cursor() as cursor:
            cursor.execute("SELECT process_at = '2099-07-01 10:00+00' FROM proletarian.job")
            assert cursor.fetchone() == (True,)


class TestTransactions:
    def test_a_rolled_back_enqueue_leaves_no_row(self, committed: None) -> None:
        with transaction.atomic():
            enqueue("foo", 1)
            enqueue_many([("foo", 1)] * 1001)
            enqueue_many([("foo", 1)] * 3001)
            transaction.set_rollback(True)
        assert rows("proletarian.job") == []

    def test_a_rolled_back_savepoint_leaves_no_row(self, committed: None) -> None:
        with transaction.atomic():
            kept = enqueue("foo", 1)
            with transaction.atomic():
                enqueue("foo", 2)
                enqueue_many([("foo", 1)] * 1001)
                transaction.set_rollback(True)
        assert [row["job_id"] for row in rows("proletarian.job")] == [kept]

    def test_others_see_the_row_at_the_commit_and_not_before(self, committed: None, claim: ClaimConnection) -> None:
        with transaction.atomic():
            enqueue("foo", 1)
            assert claim.send("SELECT count(*) FROM proletarian.job") == [("0",)]
        assert claim.send("SELECT count(*) FROM proletarian.job") == [("1",)]


BAD: list[Any] = [
    pytest.param({"payload": object()}, PayloadEncodeError, "payload", id="a payload that is no data"),
    pytest.param(
        {"payload": {"at": datetime(2026, 1, 1)}}, PayloadEncodeError, r'payload\["at"\]', id="a naive datetime in it"
    ),
    pytest.param({"payload": "\ud800"}, EnqueueError, "payload", id="a lone surrogate in it"),
    pytest.param({"job_type": ""}, EnqueueError, "job_type is empty", id="no job type"),
    pytest.param({"job_type": "a\x00b"}, EnqueueError, "NUL", id="a NUL in the job type"),
    pytest.param({"job_type": "a\ud800"}, EnqueueError, "surrogate", id="a lone surrogate in the job type"),
    pytest.param({"job_type": 3}, EnqueueError, "must be a str, not 3", id="a job type that is no text"),
    pytest.param({"queue": ""}, EnqueueError, "queue is empty", id="an empty queue"),
    pytest.param({"queue": b"mail"}, EnqueueError, "must be a str, not b'mail'", id="a queue in bytes"),
    pytest.param({"process_at": datetime(2026, 1, 1)}, EnqueueError, "no time zone.*aware", id="a naive datetime"),
    pytest.param({"process_at": "tomorrow"}, EnqueueError, "datetime, not 'tomorrow'", id="a date in words"),
    pytest.param(
        {"process_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        EnqueueError,
        "outside the years 1 to 9999",
        id="a date that UTC can't hold",
    ),
    pytest.param({"process_in": 5}, EnqueueError, r"timedelta\(seconds=5\)", id="a bare number"),
    pytest.param({"process_in": timedelta.max}, EnqueueError, "longer than 365000 days", id="a delay beyond all dates"),
    pytest.param({"job_id": "42"}, EnqueueError, "'42' is no UUID", id="an id that is no UUID"),
    pytest.param({"on_conflict": "replace"}, EnqueueError, "not 'replace'", id="an unknown rule for conflicts"),
    pytest.param({"using": "nowhere"}, EnqueueError, 'There is no database "nowhere"', id="an unknown alias"),
    pytest.param({"using": "sqlite"}, EnqueueError, '"sqlite" is sqlite.*PostgreSQL', id="another vendor's database"),
]


@pytest.mark.django_db
class TestBadInput:
    @pytest.mark.parametrize(("arguments", "error", "said"), BAD)
    def test_fails_before_any_sql(
        self, arguments: dict[str, Any], error: type[Exception], said: str, django_assert_num_queries: Any
    ) -> None:
        arguments = {"job_type": "foo", **arguments}
        with transaction.atomic(), django_assert_num_queries(0), pytest.raises(error, match=said):
            enqueue(**arguments)
        using, on_conflict = arguments.pop("using", None), arguments.pop("on_conflict", "error")
        with transaction.atomic():
            with django_assert_num_queries(0), pytest.raises(error, match=said):
                enqueue_many([("fine", 1), NewJob(**arguments)], using=using, on_conflict=on_conflict)
            assert rows("proletarian.job") == [], "and the transaction is usable"

    def test_from_a_serializer_of_ones_own(self) -> None:
        class Sloppy:
            def encode(self, value: object) -> Any:
                return value

            def decode(self, text: str) -> object:
                return text

        with override_settings(PROLETARIAN={"SERIALIZER": Sloppy()}):
            with pytest.raises(EnqueueError, match=r"Sloppy.encode returned a int"):
                enqueue("foo", 1)
            with pytest.raises(EnqueueError, match="NUL"):
                enqueue("foo", "a\x00b")
            enqueue("foo", "ab")
        assert [row["payload"] for row in rows("proletarian.job")] == ["ab"]

    @override_settings(PROLETARIAN={"THREADS": 0})
    def test_in_the_settings_is_named(self) -> None:
        with pytest.raises(ImproperlyConfigured, match=r"THREADS.* is 0.*For example"):
            enqueue("foo")


@pytest.mark.django_db
class TestAnIdThatIsTaken:
    def test_is_an_error_that_leaves_the_transaction_usable(self) -> None:
        taken = enqueue("foo", 1)
        with transaction.atomic():
            with pytest.raises(DuplicateJob, match=f"{taken} is in the queue already"):
                enqueue("foo", 2, job_id=taken)
            with pytest.raises(DuplicateJob, match=f"{taken} is in the queue already"):
                enqueue_many([NewJob("foo", 3), NewJob("foo", 4, job_id=taken)])
            enqueue("foo", 5)
        assert sorted(row["payload"] for row in rows("proletarian.job")) == ['["~#\'",1]', '["~#\'",5]']

    def test_can_be_ignored(self) -> None:
        taken = enqueue("foo", 1)
        assert enqueue("foo", 2, job_id=taken, on_conflict="ignore") == taken
        other, again = enqueue_many([("foo", 3), NewJob("foo", 4, job_id=taken)], on_conflict="ignore")
        assert again == taken
        assert {row["job_id"] for row in rows("proletarian.job")} == {taken, other}

    def test_twice_in_one_call_is_an_error_before_any_sql(self, django_assert_num_queries: Any) -> None:
        one = uuid.uuid4()
        with django_assert_num_queries(0), pytest.raises(DuplicateJob, match=str(one)):
            enqueue_many([NewJob("foo", 1, job_id=one), NewJob("foo", 2, job_id=one)])


@pytest.mark.django_db
class TestMany:
    def test_copied_rows_are_what_inserted_rows_are(self, settings: Any) -> None:
        settings.PROLETARIAN = {"CLOCK": lambda: NOW}
        # Copied rows differ by a microsecond for each thousand.
        dates = "date_trunc('milliseconds', enqueued_at), date_trunc('milliseconds', process_at) AS process_at"
        columns = f"queue, job_type, payload, attempts, {dates}"
        odd = [
            NewJob("plain", {"text": "back\\slash \t tab \n line \r return \\N \\. æøå 😀 'quoted' \"twice\""}),
            NewJob(PlainName("a\tb\\c"), queue=PlainName("\\N")),
            NewJob("later", process_at=NOW + MINUTE),
            NewJob("past", process_at=NOW - MINUTE),
            NewJob("in a minute", process_in=MINUTE),
            NewJob("both", process_at=NOW - MINUTE, process_in=MINUTE),
        ]
        enqueue_many(odd)
        inserted = rows("proletarian.job", columns)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM proletarian.job")
        enqueue_many(odd * 500)
        copied = rows("proletarian.job", f"DISTINCT {columns}")
        assert sorted(copied, key=repr) == sorted(inserted, key=repr)
        assert len(rows("proletarian.job")) == 3000

    def test_make_rows_as_one_does_with_ids_in_order(self) -> None:
        ids = enqueue_many([("foo", number) for number in range(2500)])
        stored = {row["job_id"]: row["payload"] for row in rows("proletarian.job")}
        assert [stored[job_id] for job_id in ids] == [f'["~#\'",{number}]' for number in range(2500)]

    @pytest.mark.parametrize(
        ("jobs", "round_trips"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (2500, 3), (3000, 2), (10_000, 2)]
    )
    def test_take_a_round_trip_for_each_thousand_at_most(
        self, jobs: int, round_trips: int, django_assert_num_queries: Any
    ) -> None:
        with transaction.atomic(), django_assert_num_queries(round_trips):
            enqueue_many(("foo", number) for number in range(jobs))

    def test_take_the_same_options_as_one(self) -> None:
        own = uuid.uuid4()
        [job_id] = enqueue_many([NewJob("foo", 1, queue="mail", process_in=MINUTE, job_id=own)])
        [row] = rows("proletarian.job")
        assert (job_id, row["job_id"], row["queue"]) == (own, own, ":mail")
        assert row["process_at"] - row["enqueued_at"] == MINUTE


def test_many_jobs_outside_a_transaction_are_all_or_none(committed: None) -> None:
    taken = enqueue("foo")
    with pytest.raises(DuplicateJob):
        enqueue_many([*(NewJob("foo", number) for number in range(1500)), NewJob("foo", job_id=taken)])
    assert [row["job_id"] for row in rows("proletarian.job")] == [taken]


def test_coroutines_enqueue_in_the_same_transaction(committed: None) -> None:
    @job_handler("shop/mail")
    def mail(payload: object) -> None: ...

    async def view() -> list[uuid.UUID]:
        return [await aenqueue("foo", 1), *await aenqueue_many([("foo", 2)]), await mail.aenqueue(3)]

    with transaction.atomic():
        ids = async_to_sync(view)()
        assert {row["job_id"] for row in rows("proletarian.job")} == set(ids)
        transaction.set_rollback(True)
    assert rows("proletarian.job") == []


@pytest.mark.django_db(databases=["default", "other"])
def test_using_says_which_database() -> None:
    enqueue("foo", using="other")
    enqueue_many([("foo", 1)], using="other")
    assert (rows("proletarian.job"), len(rows("proletarian.job", alias="other"))) == ([], 2)


# -- The prepared statement ------------------------------------------------------------------------------------------


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%proletarian%job%'")
        return [statement for (statement,) in cursor.fetchall()]


@pytest.fixture
def warm(committed: None) -> None:
    """The connection has enqueued often enough for its INSERT to be prepared."""
    connection.close()
    for number in range(PREPARED_AFTER + 1):
        assert prepared() == []
        enqueue("shop/mail", number)
    assert len(prepared()) == 1


def test_a_connection_that_enqueues_often_keeps_its_insert_prepared(warm: None) -> None:
    for number in range(3):
        enqueue("shop/mail", number)
    enqueue("shop/mail", process_in=MINUTE)
    assert len(prepared()) == 2, "one for each kind of statement"
    assert len(rows("proletarian.job")) == PREPARED_AFTER + 1 + 4


@pytest.mark.parametrize("forgetting", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_a_session_that_forgot_its_statements_is_enqueued_on_again(
    warm: None, forgetting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "_unpreparable", set())
    with connection.cursor() as cursor:
        cursor.execute(forgetting)
    enqueue("shop/mail")
    with transaction.atomic():
        enqueue("shop/mail")
    assert len(rows("proletarian.job")) == PREPARED_AFTER + 3
    assert prepared() == [], "and is not prepared on any more"


def test_in_a_transaction_a_forgotten_statement_fails_once_and_never_again(
    warm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "_unpreparable", set())
    for number in range(3):
        with connection.cursor() as cursor:
            cursor.execute("DISCARD ALL")
        with pytest.raises(ProgrammingError) if number == 0 else nullcontext(), transaction.atomic():
            enqueue("shop/mail")
    assert len(rows("proletarian.job")) == PREPARED_AFTER + 3


def test_a_rollback_of_the_transaction_that_prepared_leaves_a_connection_that_enqueues(committed: None) -> None:
    connection.close()
    with transaction.atomic():
        for number in range(PREPARED_AFTER + 2):
            enqueue("shop/mail", number)
        transaction.set_rollback(True)
    assert rows("proletarian.job") == []
    enqueue("shop/mail")
    with transaction.atomic():
        enqueue("shop/mail")
    assert len(rows("proletarian.job")) == 2


def test_the_prepared_insert_is_in_the_callers_transaction(warm: None) -> None:
    before = len(rows("proletarian.job"))
    with transaction.atomic():
        enqueue("shop/mail")
        with transaction.atomic():
            enqueue("shop/mail")
        transaction.set_rollback(True)
    assert len(rows("proletarian.job")) == before


def test_a_duplicate_is_found_by_the_prepared_insert_too(warm: None) -> None:
    job_id = enqueue("shop/mail")
    with transaction.atomic():
        with pytest.raises(DuplicateJob):
            enqueue("shop/mail", job_id=job_id)
        enqueue("shop/mail", job_id=job_id, on_conflict="ignore")
        other = enqueue("shop/mail")
    assert other in {row["job_id"] for row in rows("proletarian.job")}


def test_tables_made_anew_are_inserted_into_by_a_statement_prepared_before(warm: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.job RENAME TO job_before")
        try:
            cursor.execute("CREATE TABLE proletarian.job (LIKE proletarian.job_before INCLUDING ALL)")
            job_id = enqueue("shop/mail")
            cursor.execute("SELECT job_id FROM proletarian.job")
            assert cursor.fetchall() == [(job_id,)]
        finally:
            cursor.execute("DROP TABLE IF EXISTS proletarian.job")
            cursor.execute("ALTER TABLE proletarian.job_before RENAME TO job")


def test_a_transaction_that_is_broken_is_said_to_be(warm: None) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            enqueue("shop/mail")


def test_who_watches_statements_sees_the_insert(warm: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1) as watched:
        enqueue("shop/mail")
    assert watched[0]["sql"].lstrip().startswith("INSERT INTO")
    seen = []

    def wrapper(execute: Any, sql: str, *arguments: Any) -> Any:
        seen.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(wrapper):
        enqueue("shop/mail")
    assert len(seen) == 1


@pytest.mark.django_db
def test_a_watched_enqueue_works_on_queues_whose_lock_has_a_negative_number(django_assert_num_queries: Any) -> None:
    queues = [f"queue{number}" for number in range(20)]
    keys = [inserts.sleepers_key(Tables(), f":{queue}") for queue in queues]
    assert min(keys) < 0 < max(keys)
    for queue in queues:
        with django_assert_num_queries(1):
            enqueue("shop/mail", queue=queue)
    assert {row["queue"] for row in rows("proletarian.job")} == {f":{queue}" for queue in queues}


def test_a_coroutine_may_not_enqueue_as_if_it_were_none(warm: None) -> None:
    async def view() -> None:
        enqueue("shop/mail")

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(view())


def test_a_lost_connection_is_djangos_error(warm: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    with psycopg.connect(url_of()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(OperationalError):
        enqueue("shop/mail")
    connection.close()
    enqueue("shop/mail")
