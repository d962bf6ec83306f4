"""A project's code as type checkers see it. A line that ends in `# error` must be found wrong, and no other.

Read by test_typing, never run.
"""

# pyright: strict

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypedDict, assert_type
from uuid import UUID

from django_proletarian import (
    Job,
    JobHandler,
    NewJob,
    QueueWorker,
    RetryStrategy,
    aenqueue,
    create_queue_worker,
    enqueue,
    enqueue_many,
    job_handler,
)
from django_proletarian.models import ArchivedJob
from django_proletarian.models import Job as QueuedJob
from django_proletarian.testing import FrozenClock, JobRun, assert_enqueued, live_worker, perform_job, run_jobs


class Receipt(TypedDict):
    order_id: int


class RateLimited(Exception):
    retry_after: float


# -- Handlers --------------------------------------------------------------------------------------------------------


@job_handler
def send_receipt(payload: Receipt) -> str:
    return str(payload["order_id"])


def strategy(job: Job[Receipt], error: BaseException) -> RetryStrategy | None:
    return RetryStrategy(retries=job.payload["order_id"], delays=[1, timedelta(minutes=1)])


def tell_somebody(job: Job, error: BaseException) -> None: ...


@job_handler("billing/charge-card", queue="billing", retry_strategy=strategy, failed_job=tell_somebody, atomic=True)
def charge_card(payload: dict[str, int]) -> None: ...


@job_handler("shop/report", advanced=True)
def report(job: Job[Receipt]) -> int:
    assert_type(job.payload, Receipt)
    assert_type(job.attempts, int)
    job.attempts = 2  # error
    return job.payload["order_id"]


@job_handler(advanced=True, time_limit=timedelta(minutes=5))
def loose_report(job: Job) -> None:
    assert_type(job.payload, object)


@job_handler(interruptible=False)
async def fetch(payload: list[str]) -> bytes:
    return b"".join(text.encode() for text in payload)


@job_handler
def clean_up(payload: None) -> None: ...


@job_handler
def anything(payload: Any) -> None: ...


@job_handler(quue="mail")  # error
def misspelt(payload: object) -> None: ...


@job_handler(failed_job=lambda job: None)  # error
def with_a_wrong_callback(payload: object) -> None: ...


# -- They are called as they were ------------------------------------------------------------------------------------

assert_type(send_receipt({"order_id": 1}), str)
assert_type(send_receipt(payload={"order_id": 1}), str)
send_receipt(1)  # error
send_receipt()  # error
charge_card({"order_id": "1"})  # error


async def fetch_here() -> None:
    assert_type(await fetch(["a"]), bytes)
    await fetch("a", "b")  # error


# -- Their payloads are what they take -------------------------------------------------------------------------------

assert_type(send_receipt.enqueue({"order_id": 1}), UUID)
assert_type(report.enqueue({"order_id": 1}, process_in=timedelta(hours=1), queue="slow"), UUID)
charge_card.enqueue({"order_id": 1}, process_at=datetime.now(), job_id="…", on_conflict="ignore", using="reports")
loose_report.enqueue()
loose_report.enqueue({"whatever": 1})
fetch.enqueue(["a"])
clean_up.enqueue()
clean_up.enqueue(None, queue="slow")
anything.enqueue()
anything.enqueue(1)
send_receipt.enqueue({"order": 1})  # error
send_receipt.enqueue({"order_id": "1"})  # error
send_receipt.enqueue()  # error
report.enqueue({"order_id": "1"})  # error
report.enqueue()  # error
clean_up.enqueue(1)  # error
send_receipt.enqueue({"order_id": 1}, process_in=5)  # error
send_receipt.enqueue({"order_id": 1}, on_conflict="replace")  # error
send_receipt.enqueue({"order_id": 1}, delay=5)  # error


async def enqueue_here() -> None:
    assert_type(await send_receipt.aenqueue({"order_id": 1}), UUID)
    assert_type(await aenqueue(send_receipt, {"order_id": 1}), UUID)
    await send_receipt.aenqueue({"order": 1})  # error


# -- By name, or many ------------------------------------------------------------------------------------------------

assert_type(enqueue("clojure.service/ship", {"order-id": 42}, queue="shipping"), UUID)
assert_type(enqueue(send_receipt, {"order_id": 1}), UUID)
assert_type(enqueue_many([("shop.jobs/send_receipt", 1), (report, 2)]), list[UUID])
assert_type(enqueue_many([NewJob(send_receipt, 1, process_in=timedelta(hours=1))]), list[UUID])
enqueue(send_receipt.function, 1, process_at="tomorrow")  # error
enqueue(b"bytes")  # error


# -- Handed on -------------------------------------------------------------------------------------------------------


def of_any_kind(handler: JobHandler) -> str:
    return handler.job_type


of_any_kind(send_receipt)
of_any_kind(fetch)
of_any_kind(print)  # error


def of_one_kind(handler: JobHandler[[Receipt], str]) -> None: ...


def wait_for(coroutine: Coroutine[Any, Any, bytes]) -> None: ...


wait_for(fetch(["a"]))
wait_for(send_receipt({"order_id": 1}))  # error


# -- Workers, models and testing tools -------------------------------------------------------------------------------

assert_type(create_queue_worker(["mail", "default"], threads=4, shutdown_timeout=timedelta(seconds=30)), QueueWorker)
create_queue_worker(threads="4")  # error

for archived_job in ArchivedJob.objects.failed().queue("billing"):
    assert_type(archived_job, ArchivedJob)
    assert_type(archived_job.payload, object)
assert_type(QueuedJob.objects.due().first(), QueuedJob | None)
assert_type(QueuedJob.objects.filter(attempts=0).scheduled().queue("mail").get(), QueuedJob)

assert_type(run_jobs(now=datetime.now()), list[JobRun])
assert_type(perform_job(send_receipt, {"order_id": 1}), str)
assert_type(perform_job(fetch, ["a"], attempts=2), bytes)
assert_type(assert_enqueued(send_receipt, payload_contains={"order_id": 1}), QueuedJob)
run_jobs(raise_error=False)  # error
with FrozenClock() as clock, live_worker("mail", threads=2) as worker:
    assert_type(clock, FrozenClock)
    assert_type(worker.wait_for(send_receipt.enqueue({"order_id": 1})), ArchivedJob)
