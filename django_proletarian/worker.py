"""Claim, run and settle one job after another.

Called by the threads of a `QueueWorker`, and by tests.

Source: proletarian/worker.clj.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from uuid import UUID

from django_proletarian import log as events
from django_proletarian.attempt import (
    RETURNED,
    Announce,
    Attempt,
    Interrupted,
    OnDecided,
    Outcome,
    Raised,
    Returned,
    WorkerThread,
)
from django_proletarian.attempts import (
    MOST_RESULT,
    AttemptRecord,
    Failed,
    forgetting_checkpoints,
    may_record,
    recording,
    storable,
)
from django_proletarian.calling import call_handler, claims_transaction, explain_timeout, span_of
from django_proletarian.connection import COMMIT, NOTHING_AROUND, ClaimConnection
from django_proletarian.errors import JobInterrupted, JobTimeout, PayloadDecodeError, WorkerCrashed
from django_proletarian.event_loop import close_event_loop
from django_proletarian.interrupting import Stop
from django_proletarian.interrupts import current_stop
from django_proletarian.leases import DATABASE_ERRORS, Lease, keeper
from django_proletarian.levels import Levels
from django_proletarian.log import EventLog
from django_proletarian.outage import is_transient
from django_proletarian.polling import JobBudget
from django_proletarian.retry import (
    GaveUp,
    LeftInQueue,
    RetryAfter,
    RetryStrategyLike,
    Succeeded,
    Verdict,
    decide,
    decide_after_crash,
)
from django_proletarian.slots import Slot, Slots
from django_proletarian.store import (
    ClaimBounds,
    ClaimedJob,
    archiving,
    begin_lease,
    claim_due_jobs,
    replace_archived_job,
    retry_job,
)
from django_proletarian.worker_options import WorkerOptions


def process_next_job(
    options: WorkerOptions,
    claim: ClaimConnection,
    queue: str,
    *,
    stop: Stop | None = None,
    log: EventLog | None = None,
) -> bool | None:
    """Claim the oldest due job of `queue`, run it, record what became of it, commit: one transaction.

    Returns True after a job, False after an interrupted one or when a stop was asked meanwhile, None if nothing is due.
    `stop` is the event that asks. If the database fails, or the handler raises what is no Exception, the transaction
    rolls back, the row waits for the next worker as it was, and the error comes through.

    Source: proletarian/worker.clj, process-next-job!.
    """
    try:
        return process_jobs(
            options,
            claim,
            [queue],
            stop=stop or Stop(),
            log=log or EventLog(queue_worker_id=options.worker_id),
            budget=JobBudget(1),
            bounds=ClaimBounds(),
        )
    finally:
        close_event_loop()


def process_jobs(
    options: WorkerOptions,
    claim: ClaimConnection,
    queues: Sequence[str],
    *,
    stop: Stop,
    log: EventLog,
    budget: JobBudget,
    bounds: ClaimBounds,
    on_claimed: Callable[[], object] = lambda: None,
    on_decided: OnDecided | None = None,
    slot: Slot | None = None,
    announce: Announce | None = None,
    levels: Levels | None = None,
    only: UUID | None = None,
) -> bool | None:
    """Process one due job after another, always of the first of `queues` that has one, until none is due.

    Of a queue the highest priority comes first; `levels` are those of the queues, if threads share what they know.

    Ends too when a stop is asked, a job is interrupted, or the budget is spent. Each job, or each batch of them, is a
    transaction; what became of it goes to the server in the same message as the next claim: one round trip.
    `on_claimed` is called when jobs are locked, before they run, `on_decided` with each when it has run. `slot` shows
    which job runs; `announce` makes SQL that tells so at once, for a leased job. `only` is the id of the one job that
    is wanted. Returns, and raises, what process_next_job does, for the last job.
    """
    slot = slot or Slots.private(1).slot(1)
    thread = WorkerThread(
        options=options, claim=claim, stop=stop, log=log, slot=slot, on_decided=on_decided, announce=announce
    )
    levels = levels or Levels(options.tables, queues, options.own_queues)
    result: bool | None = None
    settled: list[str] = []  # SQL that ends the transaction before
    permits = 0
    token = current_stop.set(stop)
    try:
        while permits := budget.take(options.batch_size):
            # At first there is no time to lose: a level that is not known is found when there is no other job.
            may_look = only is None and (result is not None or levels.are_unknown)
            if may_look and levels.look_if_due(claim, options.now(), first=settled):
                settled = []
            jobs = claim_next(thread, levels, limit=permits, bounds=bounds, only=only, first=settled)
            settled = []
            if jobs:
                on_claimed()
            finished = run_batch(thread, jobs)
            budget.give_back(permits - len(finished))
            permits = 0
            if not jobs:
                return result
            if finished and finished[0][0].lease is None:
                settled = [*settling(thread, finished), COMMIT]
            result = not stop.is_set() and not any(isinstance(verdict, LeftInQueue) for _, verdict in finished)
            if settled and (not result or any(attempt.on_commit for attempt, _ in finished)):
                claim.send(*settled)
                settled = []
                run_on_commit(thread, finished)
            if not result:
                return result
        if settled:
            claim.send(*settled)
    except BaseException:
        budget.give_back(permits)
        claim.close()
        raise
    finally:
        current_stop.reset(token)
    return result


def claim_next(
    thread: WorkerThread,
    levels: Levels,
    *,
    limit: int,
    bounds: ClaimBounds,
    only: UUID | None,
    first: Sequence[str],
) -> list[ClaimedJob]:
    """Claim due jobs of the levels that are known, or if there are none, of those that have come since."""
    claim, options = thread.claim, thread.options
    tables, now = options.tables, options.now()
    jobs = claim_due_jobs(claim, tables, levels.queues, now, limit=limit, bounds=bounds, only=only, first=first)
    if not jobs and only is None and levels.look(claim, now):
        jobs = claim_due_jobs(claim, tables, levels.queues, now, limit=limit, bounds=bounds)
    return jobs


Finished = Sequence[tuple[Attempt, Verdict]]


def run_batch(thread: WorkerThread, jobs: Sequence[ClaimedJob]) -> Finished:
    """Run claimed jobs one after another, and decide about each.

    The rest of a batch is not begun, and so released by the commit, once it has run for `batch_seconds`, a stop is
    asked, or a job is interrupted. A job that wants a lease ends the batch before it; when it comes first it runs
    alone, is settled when this returns, and is not among what is returned if its lease was lost.
    """
    finished: list[tuple[Attempt, Verdict]] = []
    deadline = time.monotonic() + thread.options.batch_seconds
    for job in jobs:
        # If the process dies with the slot entered, the attempt counts. So all of the project's code that decides about
        # the job runs inside, and the commit, after which the process may die without harm, does not.
        thread.slot.enter(job.job_id, job.attempts, job.queue, job.job_type, time.time())
        began = time.monotonic()
        verdict: Verdict | None = None
        try:
            attempt = Attempt(thread, job)
            if attempt.lease_seconds is not None:
                return finished or run_leased(attempt, began)
            verdict = conclude(attempt, run_handler(attempt), began)
        finally:
            thread.slot.leave(verdict)
        finished.append((attempt, verdict))
        if isinstance(verdict, LeftInQueue) or thread.stop.is_set() or time.monotonic() > deadline:
            break
    return finished


def run_leased(attempt: Attempt, began: float) -> Finished:
    """Run the claimed job while no transaction is open, settle it and commit; nothing if it became another worker's."""
    thread = attempt.thread
    claim, job, slot = thread.claim, attempt.claimed, thread.slot
    lease = attempt.lease = take_lease(attempt)
    finished: Finished = []
    verdict: Verdict | None = None
    with keeping(lease, thread):
        try:
            with thread.stop.passed_on_to(lease.stop):
                outcome = run_handler(attempt)
            # Locked and as it was claimed, the job is as any other whose handler has ended.
            while lease.resume(claim, lambda error: attempt.tell(events.SQL_TRANSIENT_EXCEPTION, error=error)):
                if verdict is None:
                    verdict = conclude(attempt, outcome, began)
                    finished = [(attempt, verdict)]
                    slot.leave(verdict)
                if settle_now(thread, finished):
                    return finished
        except BaseException:
            with suppress(*DATABASE_ERRORS):  # then it is due when the lease runs out
                lease.give_back(claim)
            raise
    if not finished:  # else the connection was lost at the commit, which had been done
        attempt.tell(events.LEASE_LOST, queue=job.queue)
    return finished


def take_lease(attempt: Attempt) -> Lease:
    """Put the job off, and end the transaction that has locked it."""
    thread, job = attempt.thread, attempt.claimed
    claim, options, handler = thread.claim, thread.options, attempt.handler
    seconds = attempt.lease_seconds or 0.0
    asked_at = time.monotonic()
    until, at = begin_lease(claim, options.tables, job.job_id, seconds, options.now())
    thread.slot.lease(job.process_at)
    claim.send(*announcing(thread), COMMIT)
    return Lease(
        job,
        seconds,
        until=until,
        at=at,
        asked_at=asked_at,
        tables=options.tables,
        clock=options.now,
        raises=handler is None or handler.interruptible is not False,
    )


def keeping(lease: Lease, thread: WorkerThread) -> AbstractContextManager[None]:
    """Extend the lease as long as it is needed; not in a test's transaction, where nobody else sees it."""
    options = thread.options
    return NOTHING_AROUND if thread.claim.is_borrowed else keeper(options.database, options.worker_id).keeping(lease)


def announcing(thread: WorkerThread) -> list[str]:
    """SQL that tells everybody what runs here now. A leased row looks as if it were scheduled."""
    return [] if thread.announce is None else thread.announce(thread.claim)


def settle_now(thread: WorkerThread, finished: Finished) -> bool:
    """Write the verdicts and commit; False if the database failed in a way that passes, and it may have committed."""
    try:
        thread.claim.send(*settling(thread, finished), *announcing(thread), COMMIT)
    except Exception as error:
        if not is_transient(error):
            raise
        thread.claim.close()
        return False
    return True


def conclude(attempt: Attempt, outcome: Outcome, began: float) -> Verdict:
    """Decide about the job, and note what is to be kept of the attempt, which began at that time.monotonic()."""
    thread = attempt.thread
    verdict = decide_on(attempt, outcome)
    note_attempt(attempt, outcome, verdict, began)
    tell_handler(attempt, outcome, verdict)
    if thread.on_decided is not None:
        thread.on_decided(attempt, outcome, verdict)
    return verdict


def run_handler(attempt: Attempt) -> Outcome:
    """Run the job's handler, as a view would run, and tell how it ended.

    What is no Exception comes through, but for those that mean the job: SystemExit, from a handler that calls a
    command, and CancelledError, from one that awaits.
    """
    thread = attempt.thread
    attempt.tell(events.HANDLING_JOB)
    try:
        with span_of(attempt):
            result = call_handler(attempt)
    except JobInterrupted as error:
        return Interrupted(error)
    except JobTimeout as error:  # also while stopping: it has had its time
        explain_timeout(attempt, error)
        return Raised(error)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # the one that counts as a failure
        if thread.claim.is_lost:
            raise  # an atomic handler found the lock gone: the job is another worker's to run
        return Interrupted(error) if thread.stop.is_set() else Raised(error)
    return RETURNED if result is None else Returned(result)


def decide_on(attempt: Attempt, outcome: Outcome) -> Verdict:
    """What becomes of the job; tells the log, and the failed-job callback if this is the end of it."""
    match outcome:
        case Returned():
            attempt.tell(events.JOB_FINISHED)
            return Succeeded()
        case Interrupted(JobInterrupted()):
            attempt.tell(events.JOB_INTERRUPTED)
            return LeftInQueue()
        case Interrupted(error):
            attempt.tell(events.HANDLE_JOB_EXCEPTION_WITH_INTERRUPT, error=error)
            return LeftInQueue()
        case Raised(error):
            attempt.tell(events.HANDLE_JOB_EXCEPTION, error=error)
            verdict = retry_or_give_up(attempt, error)
            if isinstance(verdict, GaveUp):
                attempt.tell(events.NOT_RETRYING, retries_left=verdict.retries_left)
                tell_failed_job(attempt, error)
            return verdict


def retry_or_give_up(attempt: Attempt, error: BaseException) -> RetryAfter | GaveUp:
    """Ask the handler's retry strategy, or the settings'. One that raises, or is none, gives the job up.

    After a crash nothing gives it up before MAX_CRASHES runs.
    """
    if error is attempt.unreadable and isinstance(error, PayloadDecodeError):
        return GaveUp(None)  # the same text would be as unreadable at every retry
    strategy = attempt.handler.retry_strategy if attempt.handler is not None else None
    if strategy is None:
        strategy = attempt.thread.options.retry_strategy
    try:
        return verdict_by(strategy(attempt.job, error) if callable(strategy) else strategy, attempt, error)
    except (Exception, SystemExit) as broken:  # noqa: BLE001 # the user's code: its error must not keep the job for ever
        attempt.tell(events.RETRY_STRATEGY_ERROR, error=broken)
        return verdict_by(None, attempt, error)


def verdict_by(strategy: RetryStrategyLike, attempt: Attempt, error: BaseException) -> RetryAfter | GaveUp:
    """Apply the rule that goes with the error."""
    if isinstance(error, WorkerCrashed):
        stagger = timedelta(seconds=error.stagger)
        return decide_after_crash(attempt.job.attempts, strategy, attempt.thread.options.max_crashes, stagger)
    return decide(attempt.job.attempts, strategy)


def tell_failed_job(attempt: Attempt, error: BaseException) -> None:
    """Call the failed-job callback, if there is one; before the commit, so that after a crash it is called again."""
    callback = attempt.handler.failed_job if attempt.handler is not None else None
    callback = callback or attempt.thread.options.failed_job
    if callback is None:
        return
    try:
        with attempt.thread.connections, claims_transaction(attempt):
            callback(attempt.job, error)
    except (Exception, SystemExit) as broken:  # noqa: BLE001 # the user's code: the job has failed all the same
        attempt.tell(events.FAILED_JOB_CALLBACK_ERROR, error=broken)


def tell_handler(attempt: Attempt, outcome: Outcome, verdict: Verdict) -> None:
    """Tell the handler what becomes of the job, if it wants to hear; its listeners are the user's code."""
    if attempt.handler is not None and attempt.handler.hears_of_ends:
        with attempt.thread.connections:
            attempt.handler.ended(attempt, None if isinstance(outcome, Returned) else outcome.error, verdict)


def note_attempt(attempt: Attempt, outcome: Outcome, verdict: Verdict, began: float) -> None:
    """Make what is to be kept of the attempt, if anything is; `began` is time.monotonic's.

    Texts only: the exception would keep all that the handler had in its hands until the next job.
    """
    keep = attempt.thread.options.record_attempts
    if attempt.handler is not None and attempt.handler.keeps_attempts:
        keep = "all"
    if keep == "none" or (keep == "failures" and isinstance(verdict, Succeeded)):
        return
    ended = time.monotonic()
    attempt.record = AttemptRecord(
        job_id=attempt.claimed.job_id,
        attempt=attempt.claimed.attempts + 1,
        worker_id=attempt.thread.options.worker_id,
        began=began,
        ended=ended,
        outcome=outcome_name(outcome, verdict),
        failed=None if isinstance(outcome, Returned) else Failed.by(outcome.error),
        result=encoded_result(attempt, outcome.result) if isinstance(outcome, Returned) else None,
    )


def outcome_name(outcome: Outcome, verdict: Verdict) -> str:
    """The word for how an attempt ended."""
    match outcome, verdict:
        case _, LeftInQueue():
            return "interrupted"
        case Raised(WorkerCrashed()), _:
            return "crash"
        case Raised(JobTimeout()), _:
            return "timeout"
        case _, Succeeded():
            return "success"
        case _, RetryAfter():
            return "retry"
    return "failure"


def encoded_result(attempt: Attempt, result: object) -> str | None:
    """What a handler returned, as its payload is encoded; None for None, and for what can't be."""
    if result is None:
        return None
    try:
        text = attempt.thread.options.serializer.encode(result)
    except Exception:  # noqa: BLE001 # the job has succeeded, whatever its handler returned
        return None
    return storable(text, MOST_RESULT) if len(text) <= MOST_RESULT else None


def settling(thread: WorkerThread, finished: Finished) -> list[str]:
    """SQL that writes the verdicts into the claim's transaction; what needs an answer is sent here."""
    claim, tables, now = thread.claim, thread.options.tables, thread.options.now()
    archived: dict[str, list[str]] = {"success": [], "failure": []}
    for attempt, verdict in finished:
        job_id = attempt.claimed.job_id
        match verdict:
            case Succeeded() | GaveUp():
                status = "success" if isinstance(verdict, Succeeded) else "failure"
                if not attempt.claimed.is_archived:
                    archived[status].append(job_id)
                    continue
                replaced = replace_archived_job(claim, tables, job_id, status, now)
                attempt.tell(
                    events.ARCHIVED_JOB_REPLACED if replaced else events.ARCHIVED_JOB_NOT_REPLACED, status=status
                )
            case RetryAfter(delay, retries_left):
                retry_at = retry_job(claim, tables, job_id, delay, now)
                attempt.tell(events.RETRYING, retry_at=retry_at, retries_left=retries_left)
            case LeftInQueue():
                pass  # the row is as it should be
    records = [attempt.record for attempt, _ in finished if attempt.record is not None]
    with_checkpoint = [
        attempt.claimed.job_id
        for attempt, verdict in finished
        if attempt.running is not None and attempt.running.has_checkpoint and isinstance(verdict, Succeeded)
    ]
    return [
        *(archiving(claim, tables, job_ids, status, now) for status, job_ids in archived.items() if job_ids),
        *(recording(claim, tables, record, now) for record in records if may_record(claim, tables)),
        *(forgetting_checkpoints(claim, tables, job_id) for job_id in with_checkpoint),
    ]


def run_on_commit(thread: WorkerThread, finished: Finished) -> None:
    """Run what atomic handlers left for after the commit; an error can't undo a job any more, and is logged."""
    for attempt, _ in finished:
        for callback in attempt.on_commit:
            try:
                with thread.connections:
                    callback()
            except (Exception, SystemExit) as error:  # noqa: BLE001 # the user's code: the job is committed
                attempt.tell(events.ON_COMMIT_EXCEPTION, error=error)
