"""Claims inside a transaction that is open already: how the tests' and IMMEDIATE's jobs run within a TestCase.

A worker thread's own connection would not see what that transaction has written. So the caller's connection is
borrowed, and what is a transaction to the worker's code is a savepoint there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import psycopg
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from django_proletarian.connection import COMMIT, ClaimConnection

logger = logging.getLogger("django_proletarian.worker")

SAVEPOINT = "SAVEPOINT proletarian_claim"
RELEASE = "RELEASE SAVEPOINT proletarian_claim"
ROLLBACK = "ROLLBACK TO SAVEPOINT proletarian_claim"


def claim_connection(database: str, name: str) -> ClaimConnection:
    """What this thread can claim with now: the connection of its open transaction, else one of its own."""
    if connections[database].in_atomic_block:
        return BorrowedConnection(database)
    return ClaimConnection(database, name)


class BorrowedConnection(ClaimConnection):
    """`connections[database]`, in whose open transaction jobs are claimed, run and settled.

    Handlers use the same connection. As in production, what a handler has written stays if it raises later, unless it
    is `atomic`. But a statement that fails outside an `atomic` block breaks the whole transaction here, and not that
    statement alone: then all that the handler wrote is undone, and its attempt has failed.
    """

    is_borrowed = True

    def __init__(self, database: str) -> None:
        super().__init__(database, "")
        self._begin = SAVEPOINT
        self._holds_savepoint = False

    def close(self) -> None:
        """Give the connection back, as it was before the job that was claimed last, unless that is settled."""
        pgconn, self._pgconn = self._pgconn, None
        if pgconn is not None and self._holds_savepoint:
            self._holds_savepoint = False
            pgconn.exec_(f"{ROLLBACK}; {RELEASE}".encode())

    def send(self, *statements: str) -> list[Any]:
        if SAVEPOINT in statements:
            self._holds_savepoint = True
        rows = super().send(*[RELEASE if statement == COMMIT else statement for statement in statements])
        if statements[-1] == COMMIT:
            self._holds_savepoint = False
        return rows

    def _open(self) -> PGconn:
        wrapper = connections[self.database]
        wrapper.validate_thread_sharing()
        wrapper.validate_no_broken_transaction()
        connection = cast("psycopg.Connection[Any]", wrapper.connection)
        if connection.info.transaction_status == TransactionStatus.IDLE:
            connection.execute("SELECT 1")  # psycopg begins the transaction when it sends the first statement
        self._pgconn = connection.pgconn
        self._answers.clear()
        return self._pgconn

    @contextmanager
    def beside_handler(self) -> Iterator[None]:
        """A savepoint, to go back to if a handler leaves the transaction broken, and its on_commit callbacks' run.

        Without the transaction around, each of its blocks would have run them at its end.
        """
        with self._handlers_savepoint() as wrapper:
            before = len(wrapper.run_on_commit)
            try:
                yield
            finally:
                if not self._is_broken(wrapper):
                    self._run_callbacks(wrapper, before)
            if self._is_broken(wrapper):
                raise TransactionManagementError(
                    "A statement failed in this handler, which went on. That has broken the transaction of the test "
                    "around it, where a worker's handler has none. Put what may fail into `with transaction.atomic():`."
                )

    @contextmanager
    def lent_to_handler(self, on_commit: list[Callable[[], object]]) -> Iterator[None]:
        """An `atomic` block, whose on_commit callbacks are added to `on_commit` at its end."""
        with self._handlers_savepoint() as wrapper:
            before = len(wrapper.run_on_commit)
            with transaction.atomic(using=self.database):
                yield
                wrapper.validate_no_broken_transaction()
                with wrapper.wrap_database_errors:
                    self.send("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")
            callbacks, wrapper.run_on_commit[before:] = wrapper.run_on_commit[before:], []
            on_commit += [partial(self._call_back, callback) for _, callback, *_ in callbacks]

    @contextmanager
    def _handlers_savepoint(self) -> Iterator[BaseDatabaseWrapper]:
        wrapper = connections[self.database]
        before = len(wrapper.run_on_commit)
        self.send("SAVEPOINT proletarian_handler")
        try:
            yield wrapper
        finally:
            if self._is_broken(wrapper):
                self.send("ROLLBACK TO SAVEPOINT proletarian_handler")
                wrapper.needs_rollback = False
            self.send("RELEASE SAVEPOINT proletarian_handler")
            del wrapper.run_on_commit[before:]

    def _is_broken(self, wrapper: BaseDatabaseWrapper) -> bool:
        pgconn = self._pgconn or self._open()
        return wrapper.needs_rollback or pgconn.transaction_status == TransactionStatus.INERROR

    def _run_callbacks(self, wrapper: BaseDatabaseWrapper, start: int) -> None:
        """Run on_commit callbacks from the given one on, and those that they add, in Django's way."""
        while len(wrapper.run_on_commit) > start:
            entry: tuple[Any, ...] = wrapper.run_on_commit.pop(start)  # what the stubs know is two thirds of it
            _, callback, robust = entry
            try:
                callback()
            except Exception:
                if not robust:
                    raise
                logger.exception("on_commit callback %r failed", callback)

    def _call_back(self, callback: Callable[[], object]) -> None:
        with self.beside_handler():
            callback()
