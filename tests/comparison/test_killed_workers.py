"""The process that runs a task is killed amid it, by SIGKILL: what becomes of the task?"""

from __future__ import annotations

from tests.comparison.claims import claim
from tests.comparison.shop import Shop, finished
from tests.conftest import eventually

KILLED = "a worker is killed"


@claim(KILLED, "django-proletarian", "the task is free at once, and the crash counts as an attempt")
def test_ours_is_free_at_once_and_the_crash_counts(shop: Shop) -> None:
    shop.run("tasks.ours_that_is_killed.enqueue()")
    shop.start("ours")
    shop.kill("ours_that_is_killed")
    eventually(lambda: shop.runs("ours_that_is_killed") == 2)
    done = "SELECT status, attempts FROM proletarian.archived_job"
    assert eventually(lambda: shop.sql(done)) == [(":success", 2)]
    outcomes = "SELECT attempt, outcome FROM proletarian.job_attempt ORDER BY attempt"
    assert shop.sql(outcomes) == [(1, "crash"), (2, "success")]


def test_ours_is_free_at_once_with_no_supervisor_to_see_it(shop: Shop) -> None:
    shop.run("tasks.ours_that_is_killed.enqueue()")
    shop.start("ours", "--no-supervisor")
    free = "SELECT attempts FROM proletarian.job FOR UPDATE SKIP LOCKED"
    eventually(lambda: shop.runs("ours_that_is_killed"))
    assert shop.sql(free) == [], "the row is locked while the task runs"
    shop.kill("ours_that_is_killed")
    # Nobody does anything for it: no worker is left.
    assert eventually(lambda: shop.sql(free), seconds=10) == [(0,)]


@claim(KILLED, "django-tasks-db", "the task stays `RUNNING`")
def test_theirs_stays_running(shop: Shop) -> None:
    shop.run("tasks.tasks_db_that_is_killed.enqueue()")
    victim = shop.start("django-tasks-db")
    assert shop.kill("tasks_db_that_is_killed") == victim.pid
    victim.wait()
    shop.work("django-tasks-db")
    assert shop.runs("tasks_db_that_is_killed") == 1
    assert shop.sql("SELECT status FROM django_tasks_database_dbtaskresult") == [("RUNNING",)]


@claim(KILLED, "procrastinate", "jobs stay `doing` until a task that you schedule finds them stalled")
def test_procrastinates_stays_doing_until_somebody_looks_for_stalled_jobs(shop: Shop) -> None:
    shop.run("tasks.procrastinate_that_is_killed.defer()")
    victim = shop.start("procrastinate")
    assert shop.kill("procrastinate_that_is_killed") == victim.pid
    victim.wait()
    shop.work("procrastinate")
    assert shop.runs("procrastinate_that_is_killed") == 1
    status = "SELECT status::text FROM procrastinate_jobs"
    assert shop.sql(status) == [("doing",)]

    # As if half a minute had passed without a sign of life, which is when they are looked for by default.
    shop.sql("UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '31 seconds'")
    shop.run(RETRY_STALLED)
    shop.work("procrastinate")
    assert shop.runs("procrastinate_that_is_killed") == 2
    assert shop.sql(status) == [("succeeded",)]


RETRY_STALLED = """
from asgiref.sync import async_to_sync

async def retry_stalled():
    manager = tasks.procrastinate_app.job_manager
    for job in await manager.get_stalled_jobs():
        await manager.retry_job(job)

async_to_sync(retry_stalled)()
"""


@claim(
    KILLED,
    "Celery",
    "lost, unless `acks_late` and `task_reject_on_worker_lost`, or `task_retry_on_worker_lost`, are set",
)
def test_celerys_is_lost_unless_told_otherwise(shop: Shop) -> None:
    """The process of the pool that runs it is killed, and the worker itself lives to see it."""
    lost = ("celery_that_is_killed", "celery_with_acks_late", "celery_with_reject")
    kept = ("celery_with_both", "celery_with_retry")
    printed = shop.run(f"for name in {lost + kept}:\n    print(name, getattr(tasks, name).delay().id)")
    ids = dict(line.split() for line in printed.splitlines()[-5:])
    shop.start("Celery", "--concurrency", "5")
    for name in lost + kept:
        shop.kill(name)

    # Celery waits ten seconds for what a dead process may have left to say.
    over = eventually(lambda: len(results := finished(shop)) == 5 and results)
    assert {name: over[ids[name]]["status"] for name in ids} == {
        **dict.fromkeys(lost, "FAILURE"),
        **dict.fromkeys(kept, "SUCCESS"),
    }
    assert {over[ids[name]]["result"]["exc_type"] for name in lost} == {"WorkerLostError"}
    assert shop.messages == []
    assert {name: shop.runs(name) for name in ids} == {**dict.fromkeys(lost, 1), **dict.fromkeys(kept, 2)}


def test_the_settings_are_off_where_nobody_sets_them(shop: Shop) -> None:
    names = ("task_acks_late", "task_reject_on_worker_lost", "task_retry_on_worker_lost")
    said = shop.run(f"import celery\nprint('set:', [name for name in {names} if celery.Celery().conf[name]])")
    assert said.splitlines()[-1] == "set: []"
