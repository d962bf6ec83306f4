"""A worker whose connections the server ends, one at a time, at the worst moments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_proletarian import QueueWorker, RetryStrategy, enqueue, enqueue_many, job_handler
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.events import Events
from tests.live.processes import archived, claims_of, sql, url_of

RunWorker = Callable[..., QueueWorker]


def end_connection(pid: int) -> None:
    """End the server's end of a connection, and wait until it is gone."""
    sql(url_of(), "SELECT pg_terminate_backend(%s)", [pid])
    eventually(lambda: not sql(url_of(), "SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]))


class Pausing:
    """A handler's body that stops in its first run until the test lets it go on, and tells its connection's pid."""

    def __init__(self) -> None:
        self.runs = 0
        self.pid = 0
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.runs += 1
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self.pid = cursor.fetchone()[0]
        self.started.set()
        assert self.go.wait(20)


def test_an_idle_worker_whose_connection_ends_says_so_once_and_goes_on(run_worker: RunWorker, events: Events) -> None:
    job_handler("tests/note")(lambda payload: Entry.objects.create(text=payload))
    run_worker(worker_id="idle")
    enqueue("tests/note", "before")
    eventually(lambda: archived(url_of()))

    end_connection(claims_of(url_of(), "idle")[0])
    enqueue("tests/note", "after")

    eventually(lambda: len(archived(url_of())) == 2)
    assert list(Entry.objects.values_list("text", flat=True)) == ["before", "after"]
    assert set(archived(url_of())) == {(":tests/note", ":success", 1)}
    assert [name for name in events.names if "exception" in name or "database" in name] == [
        "sql-transient-exception",
        "database-is-back",
    ]


def test_a_busy_worker_comes_back_as_soon_after_its_tenth_lost_connection_as_after_its_first(
    run_worker: RunWorker,
) -> None:
    ended = set()

    @job_handler("tests/end-claim", retry_strategy=RetryStrategy(retries=3))
    def end_claim(number: int) -> None:
        if number % 5 == 0 and number not in ended:
            ended.add(number)
            end_connection(claims_of(url_of(), "busy")[0])

    # All due at once, so that the worker is never without a job: ten times five jobs, and a pause before the next five.
    enqueue_many([("tests/end-claim", number) for number in range(50)])
    run_worker(worker_id="busy")

    eventually(lambda: len(archived(url_of())) == 50)
    assert len(ended) == 10


def test_an_idle_worker_comes_back_as_soon_after_its_tenth_lost_connection_as_after_its_first(
    run_worker: RunWorker, settings: Any
) -> None:
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": 0.02}
    run_worker(worker_id="idle")
    for _ in range(10):
        [pid] = eventually(lambda: claims_of(url_of(), "idle"), seconds=10)
        end_connection(pid)


def test_a_job_whose_claim_is_lost_while_it_runs_is_run_again_and_archived_once(
    run_worker: RunWorker, events: Events
) -> None:
    body = Pausing()
    job_handler("tests/pause")(lambda payload: body())
    enqueue("tests/pause")
    before = rows("proletarian.job")
    run_worker(worker_id="busy")
    assert body.started.wait(20)

    end_connection(claims_of(url_of(), "busy")[0])
    assert rows("proletarian.job") == before
    body.go.set()

    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/pause", ":success", 1)]
    assert body.runs == 2
    assert rows("proletarian.job") == []
    assert len(events["sql-transient-exception"]) == 1


def test_an_atomic_job_whose_claim_is_lost_while_it_runs_leaves_its_effects_once(run_worker: RunWorker) -> None:
    body = Pausing()

    @job_handler("tests/pause", atomic=True)
    def pause(payload: object) -> None:
        Entry.objects.create(text="before the pause")
        body()
        Entry.objects.create(text="after the pause")

    enqueue("tests/pause")
    run_worker(worker_id="busy")
    assert body.started.wait(20)

    end_connection(body.pid)
    body.go.set()

    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/pause", ":success", 1)]
    assert body.runs == 2
    assert sorted(Entry.objects.values_list("text", flat=True)) == ["after the pause", "before the pause"]


def test_an_atomic_job_that_swallows_the_loss_of_its_claim_is_run_again(run_worker: RunWorker) -> None:
    body = Pausing()

    @job_handler("tests/pause", atomic=True)
    def pause(payload: object) -> None:
        body()
        try:
            Entry.objects.create(text="written")
        except Exception:
            return

    enqueue("tests/pause")
    run_worker(worker_id="busy")
    assert body.started.wait(20)

    end_connection(body.pid)
    body.go.set()

    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/pause", ":success", 1)]
    assert body.runs == 2
    assert Entry.objects.count() == 1


def test_a_job_that_loses_its_own_connection_has_failed_one_attempt(run_worker: RunWorker, events: Events) -> None:
    body = Pausing()

    @job_handler("tests/pause", retry_strategy=RetryStrategy(retries=1))
    def pause(payload: object) -> None:
        body()
        Entry.objects.create(text="written")

    enqueue("tests/pause")
    run_worker(worker_id="busy")
    assert body.started.wait(20)

    end_connection(body.pid)
    body.go.set()

    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/pause", ":success", 2)]
    assert body.runs == 2
    assert Entry.objects.count() == 1
    assert [name for name in events.names if "sql" in name] == []


@pytest.fixture
def connection_ends_at_first_commit(committed: None) -> Iterator[None]:
    """The server ends the connection of whoever archives first, in the middle of its COMMIT."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE SEQUENCE commits;
            CREATE FUNCTION end_connection() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                -- A sequence goes on although the transaction is undone.
                IF nextval('commits') = 1 THEN
                    PERFORM pg_terminate_backend(pg_backend_pid());
                    PERFORM pg_sleep(10);
                END IF;
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER end_connection AFTER INSERT ON proletarian.archived_job
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION end_connection();
            """
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION end_connection CASCADE; DROP SEQUENCE commits")


@pytest.mark.usefixtures("connection_ends_at_first_commit")
@pytest.mark.parametrize("atomic", [False, True])
def test_a_job_whose_claim_is_lost_at_commit_is_run_again_and_archived_once(
    run_worker: RunWorker, atomic: bool
) -> None:
    job_handler("tests/note", atomic=atomic)(lambda payload: Entry.objects.create(text="written"))
    enqueue("tests/note")
    run_worker()

    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/note", ":success", 1)]
    assert rows("proletarian.job") == []
    # A plain handler's write was committed before the claim was lost; an atomic one's went with it.
    assert Entry.objects.count() == (1 if atomic else 2)


def test_every_thread_comes_back_when_all_claims_end_at_once(run_worker: RunWorker) -> None:
    meeting = threading.Barrier(4, timeout=20)
    job_handler("tests/meet")(lambda payload: meeting.wait())
    run_worker(worker_id="four", threads=4)
    for _ in range(4):
        enqueue("tests/meet")
    eventually(lambda: len(archived(url_of())) == 4)

    for pid in claims_of(url_of(), "four"):
        end_connection(pid)
    for _ in range(4):
        enqueue("tests/meet")

    eventually(lambda: len(archived(url_of())) == 8)
    assert set(archived(url_of())) == {(":tests/meet", ":success", 1)}
