"""The two kinds of connection in a worker thread: its own, that it claims with, and Django's, that handlers use.

The store sends its statements through the first; the worker lends it to `atomic` handlers and tidies the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

import psycopg
from django.db import close_old_connections, connections, reset_queries, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

# READ COMMITTED whatever the database's default: under a stricter level SKIP LOCKED fails on rows that others changed.
# A server that limits idle transactions would cut the lock while the job runs, and the job would run twice at once.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = 0; "
BEGIN_17 = BEGIN + "SET LOCAL transaction_timeout = 0; "  # the setting came with PostgreSQL 17

# A row lock of a host that vanished lives as long as its socket does; the kernel's own default is two hours.
# These are the server's ends of the socket. On a Unix-domain socket the server ignores them.
KEEPALIVES = (
    "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4; "
    "SET tcp_user_timeout = 40000"  # milliseconds
)


class ClaimConnection:
    """A worker thread's private connection, which holds the lock and the open transaction of the job that runs.

    `database` is the alias to connect as; `name` is what the server shows as application_name. Opened when first used,
    by the thread that uses it, which must also close it. Errors are psycopg's, or Django's where connecting failed.
    """

    def __init__(self, database: str, name: str) -> None:
        self.database = database
        self._name = name
        self._wrapper: BaseDatabaseWrapper | None = None
        self._cursor: psycopg.ClientCursor[Any] | None = None
        self._begin = BEGIN

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the server ends its transaction and lets its lock go. The next use opens another."""
        wrapper, self._wrapper, self._cursor = self._wrapper, None, None
        if wrapper is not None:
            wrapper.close()

    def fetch_in_new_transaction(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Begin a transaction and run `statement`, in one round trip; return its rows."""
        cursor = self._cursor or self._open()
        return _fetch(cursor, self._begin + statement, values)

    def fetch(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Run `statement` in the open transaction; return its rows."""
        return _fetch(self._cursor or self._open(), statement, values)

    def commit(self) -> None:
        """Commit the open transaction."""
        self.fetch("COMMIT")

    def _open(self) -> psycopg.ClientCursor[Any]:
        wrapper = connections[self.database].copy(alias=f"{self.database} (claims of {self._name})")
        wrapper.settings_dict["AUTOCOMMIT"] = True
        options = wrapper.settings_dict["OPTIONS"]
        # Django keys its psycopg pool by alias; a copied alias would open its own.
        options.pop("pool", None)
        options["application_name"] = self._name[:63]
        wrapper.ensure_connection()
        connection = cast("psycopg.Connection[Any]", wrapper.connection)
        self._wrapper = wrapper
        self._begin = BEGIN_17 if connection.info.server_version >= 170000 else BEGIN
        # Binding on the client's side sends several statements in one message, and needs no prepared statements,
        # which a transaction-pooling PgBouncer may not keep.
        self._cursor = psycopg.ClientCursor(connection)
        self._cursor.execute(KEEPALIVES)
        return self._cursor

    @contextmanager
    def lent_to_handler(self, on_commit: list[Callable[[], object]]) -> Iterator[None]:
        """Put this connection in place of `connections[database]`, its transaction as an `atomic` block around.

        What runs inside rolls back alone if it raises; the transaction, with the job's lock, goes on. The
        `transaction.on_commit` callbacks that wait for its commit are added to `on_commit` at the end.
        """
        wrapper = self._wrapper
        if wrapper is None:
            raise RuntimeError("A claim connection is lent only while it holds a job.")
        handlers_own = connections[self.database]
        # The transaction was begun in SQL, which Django's wrapper did not see.
        wrapper.in_atomic_block, wrapper.autocommit = True, False
        # Closing it would give up the job's lock. A handler that closes all connections means its own.
        wrapper.close = _stay_open  # type: ignore[method-assign]
        connections[self.database] = wrapper
        try:
            with transaction.atomic(using=self.database):
                yield
                # A handler may have swallowed an error that Django answers by undoing the whole block: no success then.
                wrapper.validate_no_broken_transaction()
                # Django's foreign keys are checked at COMMIT, where a violation would take the archive down with it.
                with wrapper.wrap_database_errors:
                    self.fetch("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        finally:
            connections[self.database] = handlers_own
            del wrapper.close
            on_commit += [callback for _, callback, *_ in wrapper.run_on_commit]
            # Blocks that the handler left open would count as the next handler's.
            wrapper.run_on_commit, wrapper.savepoint_ids, wrapper.atomic_blocks = [], [], []
            wrapper.in_atomic_block, wrapper.autocommit, wrapper.needs_rollback = False, True, False


@contextmanager
def handlers_connections() -> Iterator[None]:
    """Django's connections as a view finds and leaves them: no stale one before, nothing left open after."""
    reset_queries()
    close_old_connections()
    outer = {connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block}
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in outer and _has_open_transaction(connection):
                # The thread's next job must not run inside it, nor be undone with it.
                connection.close()
                del connections[connection.alias]
        close_old_connections()


def _has_open_transaction(connection: BaseDatabaseWrapper) -> bool:
    if connection.in_atomic_block or connection.connection is None:
        return connection.in_atomic_block
    return bool(connection.autocommit != connection.settings_dict["AUTOCOMMIT"])


def _stay_open() -> None:
    """What `close()` does on a connection that is lent."""


def _fetch(cursor: psycopg.ClientCursor[Any], statement: str, values: Sequence[object]) -> list[Any]:
    cursor.execute(statement, values)
    while cursor.nextset():
        pass
    return cursor.fetchall() if cursor.description is not None else []
