"""Call the handler of an attempt: with its job at hand, interrupted when its time is up, and in which transaction."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from django_proletarian import log as events
from django_proletarian.attempt import Attempt
from django_proletarian.connection import NOTHING_AROUND
from django_proletarian.errors import JobTimeout
from django_proletarian.handlers import Around, Handler, no_handler
from django_proletarian.interrupting import Interruptible
from django_proletarian.interrupts import current_stop
from django_proletarian.job import current_attempt
from django_proletarian.leases import Lease
from django_proletarian.time_limits import TimeLimit


def call_handler(attempt: Attempt) -> object:
    """Call the job's handler and return what it returns. Raises what it raises, and if it can't be called, why."""
    thread, handler = attempt.thread, attempt.handler
    if attempt.unreadable is not None:
        raise attempt.unreadable
    if handler is None:
        raise no_handler(attempt.claimed.job_type)
    token = current_attempt.set(attempt)
    try:
        with thread.connections, claims_transaction(attempt):
            limit = time_limit_of(attempt)
            if limit is None and attempt.lease is None:
                return handler.run(attempt, thread.stop)
            return call_watched(attempt, handler, limit)
    finally:
        current_attempt.reset(token)


def call_watched(attempt: Attempt, handler: Handler, limit: TimeLimit | None) -> object:
    """Call a handler that is interrupted if its time is up or its lease is lost."""
    thread, lease = attempt.thread, attempt.lease
    began = time.monotonic()
    token = current_stop.set(attempt.stop)
    try:
        return handler.run(attempt, thread.stop, around(limit, lease))
    finally:
        current_stop.reset(token)
        is_over = limit is not None and time.monotonic() - began > limit.seconds
        if is_over or (lease is not None and lease.is_lost):
            # Whatever it made of the exception, which came anywhere, perhaps amid an answer of the server.
            thread.connections.close()


def around(*watches: TimeLimit | Lease | None) -> Around:
    """What goes around the call of a handler that may have to be interrupted by these."""

    @contextmanager
    def around_all(call: Interruptible) -> Iterator[None]:
        with ExitStack() as stack:
            for watch in watches:
                if watch is not None:
                    stack.enter_context(watch.around(call))
            yield

    return around_all


def time_limit_of(attempt: Attempt) -> TimeLimit | None:
    """The handler's time limit, else the setting's; None if there is none."""
    options, slot = attempt.thread.options, attempt.thread.slot
    seconds = seconds_allowed(attempt)
    if seconds == math.inf:
        return None
    return TimeLimit(
        seconds=seconds,
        grace=options.time_limit_grace,
        note=slot.limit,
        on_ignored=lambda: attempt.tell(events.TIME_LIMIT_IGNORED, time_limit=f"{seconds:g} s"),
    )


def seconds_allowed(attempt: Attempt) -> float:
    """How long the attempt's handler may run; infinity for no limit."""
    own = attempt.handler.time_limit if attempt.handler is not None else None
    seconds = attempt.thread.options.time_limit if own is None else own
    return math.inf if seconds is None else seconds


def explain_timeout(attempt: Attempt, error: JobTimeout) -> None:
    """Say in the exception, which was raised without any words, what it means."""
    if not error.args:
        error.args = (f"It ran for longer than its time limit of {seconds_allowed(attempt):g} s.",)


def claims_transaction(attempt: Attempt) -> AbstractContextManager[None]:
    """The transaction that holds the job's lock, for a handler that asked to run in it; else, as a rule, nothing."""
    if attempt.handler is not None and attempt.handler.atomic:
        return attempt.thread.claim.lent_to_handler(attempt.on_commit)
    return attempt.thread.claim.beside_handler()


def span_of(attempt: Attempt) -> AbstractContextManager[None]:
    """The span around an attempt, if spans are made."""
    tracing = attempt.thread.options.tracing
    return NOTHING_AROUND if tracing is None else tracing.running(attempt.claimed)
