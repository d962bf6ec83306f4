"""Which errors of the database pass, which stay, and how a worker waits for one that passes.

Asked by the worker's threads when claiming or recording failed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import InterfaceError, OperationalError
from django.utils.connection import ConnectionDoesNotExist
from psycopg.errors import InsufficientPrivilege, InvalidSchemaName, UndefinedTable

from django_proletarian.tables import Tables

LONGEST_PAUSE = 30.0  # seconds

# Undefined table or column, missing right, missing schema, missing database: waiting mends none of them.
PERMANENT_CLASSES = ("42", "3F", "3D")
READ_ONLY = "25006"  # a standby that is about to be promoted, or a primary that was demoted


def is_permanent(error: BaseException) -> bool:
    """Whether only a person can mend it: a missing table, a missing right, a wrong setting."""
    if isinstance(error, ImproperlyConfigured | ConnectionDoesNotExist):
        return True
    return (_sqlstate(error) or "").startswith(PERMANENT_CLASSES)


def is_transient(error: BaseException) -> bool:
    """Whether it passes by itself: lost connections, restarts, failovers, serialization failures, deadlocks."""
    kinds = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
    return not is_permanent(error) and (isinstance(error, kinds) or _sqlstate(error) == READ_ONLY)


def is_missing_table(error: BaseException) -> bool:
    """Whether a table or its schema does not exist."""
    return any(isinstance(each, UndefinedTable | InvalidSchemaName) for each in (error, error.__cause__))


def how_to_make_tables(database: str) -> str:
    """What to run where tables are missing."""
    return f"Make them with: manage.py migrate django_proletarian --database {database}"


def explained(error: BaseException, database: str, tables: Tables) -> str:
    """What ended a worker on that alias, for a person who has to mend it."""
    text = str(error).strip()
    if is_missing_table(error):
        return f'The tables are missing in database "{database}": {text}\n{how_to_make_tables(database)}'
    if isinstance(error, InsufficientPrivilege):
        return (
            f'The role that database "{database}" is used as lacks a right: {text}\n'
            f"It needs SELECT, INSERT, UPDATE and DELETE on {tables.job}, and SELECT and INSERT on "
            f"{tables.archived_job}."
        )
    return f"The worker stopped because of an error: {type(error).__name__}: {text}"


def _sqlstate(error: BaseException) -> str | None:
    # Django wraps psycopg's error and keeps it as the cause.
    for candidate in (error, error.__cause__):
        if isinstance(candidate, psycopg.Error):
            return candidate.sqlstate
    return None


def pauses() -> Iterator[float]:
    """Seconds to wait before each further try: doubling from a tenth to half a minute, each shortened by chance.

    Chance keeps many threads and hosts from coming back to a restarted server in step.
    """
    longest = 0.1
    while True:
        yield longest * random.uniform(0.5, 1)  # noqa: S311 # no secret
        longest = min(longest * 2, LONGEST_PAUSE)


class Backoff:
    """The pauses of one thread: each longer than the one before, until the thread gets something done again."""

    def __init__(self) -> None:
        self._pauses = pauses()
        self._waited = False

    def pause(self) -> float:
        """Seconds to wait now, after an error."""
        self._waited = True
        return next(self._pauses)

    def succeeded(self) -> None:
        """Note that what failed before would not fail now. Called for every job."""
        if self._waited:
            self._pauses, self._waited = pauses(), False


class Outage:
    """Whether the database is away, as the threads of one worker found it, so that one of them says so and not all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._away = False
        self._number = 0  # of the last outage
        self._thread = threading.local()  # .known: number of the last outage that this thread knows of

    def began(self) -> bool:
        """Note that the database is away; True for the first to notice.

        A thread that slept through an outage, and finds its old connection dead, has noticed nothing new.
        """
        with self._lock:
            known = self._learn()
            if self._away or known < self._number:
                return False
            self._away = True
            self._number += 1
            self._learn()
            return True

    def ended(self) -> bool:
        """Note that the database answers; True for the first to notice after an outage.

        An answer from before the outage, to a thread that does not know of it yet, does not end it.
        """
        known = self._learn()
        # Read without the lock: most calls come from a healthy worker, after every poll.
        if not self._away or known < self._number:
            return False
        with self._lock:
            ended, self._away = self._away, False
        return ended

    def _learn(self) -> int:
        known: int = getattr(self._thread, "known", 0)
        self._thread.known = self._number
        return known
