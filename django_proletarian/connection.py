"""A worker thread's own connection, which it claims with: raw messages, and the loan of it to `atomic` handlers.

The store sends its statements through it, the listener waits on one. What other handlers use is Django's own:
see handlers_connections.
"""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, cast

import psycopg
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq.abc import PGconn, PGresult

TUPLES_OK, COMMAND_OK = psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK

# READ COMMITTED whatever the database's default: under a stricter level SKIP LOCKED fails on rows that others changed.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# What every claim transaction runs with.
TRANSACTION_SETTINGS = {
    # A server that limits idle transactions would cut the lock while the job runs, and the job would run twice at once.
    "idle_in_transaction_session_timeout": "0",
    # A plan made while the queue was empty reads the whole table, and may be kept when it has grown to a million rows.
    "enable_seqscan": "off",
    # One plan for all values, made once: making one costs more than running it.
    "plan_cache_mode": "force_generic_plan",
}
PLAN_SETTINGS = ("enable_seqscan", "plan_cache_mode")
OUR_PLANS = [f"SET LOCAL {name} = {TRANSACTION_SETTINGS[name]}" for name in PLAN_SETTINGS]
HANDLERS_OWN_PLANS = [f"SET LOCAL {name} TO DEFAULT" for name in PLAN_SETTINGS]
TRANSACTION_SETTINGS_17 = {**TRANSACTION_SETTINGS, "transaction_timeout": "0"}  # which came with PostgreSQL 17

# A row lock of a host that vanished lives as long as its socket does; the kernel's own default is two hours.
# These are for the server's end of the socket. On a Unix-domain socket the server ignores them.
KEEPALIVES = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "40000",  # milliseconds
}

# And these for ours, if the project has none of its own: a worker must not wait for hours for a server that vanished.
OUR_KEEPALIVES = {
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 40000,  # milliseconds
    "connect_timeout": 20,
}

COMMIT = "COMMIT"
PARAMETER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is run for every job: its parameters are `$1`, `$2`, …, of the given types."""

    name: str
    types: tuple[str, ...]
    text: str

    def inline(self, literals: Sequence[str]) -> str:
        """SQL that runs it once, unprepared."""
        typed = [f"{literal}::{kind}" for literal, kind in zip(literals, self.types, strict=True)]
        return PARAMETER.sub(lambda match: typed[int(match[1]) - 1], self.text)


class PrivateConnection:
    """A connection of one of the worker's threads, apart from Django's.

    `database` is the alias to connect as; `name` is what the server shows as application_name. Opened when first used,
    by the thread that uses it, which must also close it. Errors are psycopg's, or Django's where connecting failed.
    `on_open` are statements that it begins with, where it keeps its session.

    Statements are collected into messages, each sent whole by the simple query protocol: one round trip, however many
    statements. Values are written into the text, since only so several statements fit into one message.
    """

    def __init__(self, database: str, name: str, *, on_open: Sequence[str] = ()) -> None:
        self.database = database
        self._name = name
        self._on_open = on_open
        self._wrapper: BaseDatabaseWrapper | None = None
        self._pgconn: PGconn | None = None
        self._begin = BEGIN
        self._keeps_session = False
        self._prepared: set[str] = set()  # names of statements
        self._first: list[str] = []  # what the next message begins with
        self._answers: dict[str, bool] = {}  # to the questions of `is_true`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the server ends its transaction and lets its lock go. The next use opens another."""
        wrapper, self._wrapper, self._pgconn = self._wrapper, None, None
        self._first = []
        if wrapper is not None:
            wrapper.close()

    @property
    def keeps_session(self) -> bool:
        """Whether all transactions run on one server connection, as they do not behind a pooler. Opens it."""
        if self._pgconn is None:
            self._open()
        return self._keeps_session

    def wait_for_notify(self, wake: int, seconds: float) -> list[str]:
        """Wait until the server notifies, the file descriptor `wake` is readable, or `seconds` pass.

        Returns the payloads of the notifications that came. Raises OperationalError if the connection is gone.
        """
        pgconn = self._pgconn or self._open()
        if heard := _notifications(pgconn):
            return heard  # they came with the answer to a statement
        with selectors.DefaultSelector() as selector:
            selector.register(pgconn.socket, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            for key, _ in selector.select(seconds):
                if key.fd == wake:
                    os.read(wake, 4096)
        pgconn.consume_input()
        return _notifications(pgconn)

    @property
    def is_lost(self) -> bool:
        """Whether the last message found the connection gone, and with it the job's lock."""
        return self._pgconn is not None and self._pgconn.status != psycopg.pq.ConnStatus.OK

    def begin(self) -> str:
        """SQL that begins a transaction."""
        if self._pgconn is None:
            self._open()
        return self._begin

    def call(self, statement: Statement, *values: object) -> str:
        """SQL that runs `statement` with `values`: the prepared one, where the connection keeps those.

        A value is None, a str, a number, an aware datetime, or a list of such.
        """
        pgconn = self._pgconn or self._open()
        literals = [_literal(pgconn, value) for value in values]
        if not self._keeps_session:
            return statement.inline(literals)
        if statement.name not in self._prepared:
            self.send(f"PREPARE {statement.name} ({', '.join(statement.types)}) AS {statement.text}")
            self._prepared.add(statement.name)
        return f"EXECUTE {statement.name}({', '.join(literals)})"

    def is_true(self, question: str) -> bool:
        """Whether the query `question`, which returns one boolean, says yes (NULL is no). Asked once a connection."""
        if self._pgconn is None:
            self._open()
        if question not in self._answers:
            self._answers[question] = self.send(question) == [("t",)]
        return self._answers[question]

    def inline(self, statement: Statement, *values: object) -> str:
        """SQL that runs `statement` once, planned for these very values."""
        pgconn = self._pgconn or self._open()
        return statement.inline([_literal(pgconn, value) for value in values])

    def send(self, *statements: str) -> list[Any]:
        """Run the statements in one round trip; return the rows of the last one, as tuples of text or None."""
        pgconn = self._pgconn or self._open()
        if self._first:
            statements, self._first = (*self._first, *statements), []
        result = pgconn.exec_("; ".join(statements).encode())
        if result.status == TUPLES_OK:
            columns = range(result.nfields)
            return [
                tuple([_text(result.get_value(row, column)) for column in columns]) for row in range(result.ntuples)
            ]
        if result.status != COMMAND_OK:
            raise _error_of(result)
        return []

    def _open(self) -> PGconn:
        wrapper = connections[self.database].copy(alias=f"{self.database} (claims of {self._name})")
        wrapper.settings_dict["AUTOCOMMIT"] = True
        options = wrapper.settings_dict["OPTIONS"] = {**OUR_KEEPALIVES, **wrapper.settings_dict["OPTIONS"]}
        # Django keys its psycopg pool by alias; a copied alias would open its own.
        options.pop("pool", None)
        options["application_name"] = self._name[:63]
        wrapper.ensure_connection()
        self._wrapper = wrapper
        connection = cast("psycopg.Connection[Any]", wrapper.connection)
        self._pgconn = connection.pgconn
        settings = TRANSACTION_SETTINGS_17 if connection.info.server_version >= 170000 else TRANSACTION_SETTINGS
        [(server_process,)] = self.send(*_set("SESSION", KEEPALIVES), "SELECT pg_backend_pid()")
        # A pooler such as PgBouncer tells its clients a process number of its own. Behind one, the next transaction may
        # run on another server connection, which knows neither our settings nor our prepared statements.
        self._keeps_session = server_process == str(self._pgconn.backend_pid)
        self._prepared.clear()
        self._answers.clear()
        if self._keeps_session:
            self._begin = BEGIN
            self.send(*_set("SESSION", settings), *self._on_open)
        else:
            self._begin = "; ".join([BEGIN, *_set("LOCAL", settings)])
        return self._pgconn


class ClaimConnection(PrivateConnection):
    """A worker thread's connection that holds the lock and the open transaction of the job that runs."""

    is_borrowed = False  # from one who has a transaction open around all of it

    def beside_handler(self) -> AbstractContextManager[None]:
        """What goes around a handler that has nothing to do with this connection: nothing, unless it is borrowed."""
        return NOTHING_AROUND

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
        # The savepoint is ours, for Django's would cost two round trips more. First of all: if the connection is gone
        # nothing has been put in its place yet.
        self.send("SAVEPOINT proletarian_handler", *HANDLERS_OWN_PLANS)
        # The transaction was begun in SQL, which Django's wrapper did not see.
        wrapper.in_atomic_block, wrapper.autocommit = True, False
        # Closing it would give up the job's lock. A handler that closes all connections means its own.
        wrapper.close = _stay_open  # type: ignore[method-assign]
        connections[self.database] = wrapper
        undo = True
        try:
            with transaction.atomic(using=self.database, savepoint=False):
                yield
                # A handler may have swallowed an error that Django answers by undoing the whole block: no success then.
                wrapper.validate_no_broken_transaction()
                # Django's foreign keys are checked at COMMIT, where a violation would take the archive down with it.
                with wrapper.wrap_database_errors:
                    self.send("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")
            undo = False
        finally:
            connections[self.database] = handlers_own
            del wrapper.close
            callbacks = wrapper.run_on_commit
            # Blocks that the handler left open would count as the next handler's.
            wrapper.run_on_commit, wrapper.savepoint_ids, wrapper.atomic_blocks = [], [], []
            wrapper.in_atomic_block, wrapper.autocommit, wrapper.needs_rollback = False, True, False
            # The plans set above are undone by ROLLBACK TO, but not by RELEASE.
            if undo:
                self.send("ROLLBACK TO SAVEPOINT proletarian_handler")
            else:
                self._first = ["RELEASE SAVEPOINT proletarian_handler", *OUR_PLANS]
                on_commit += [callback for _, callback, *_ in callbacks]


NOTHING_AROUND = nullcontext()


def _stay_open() -> None:
    """What `close()` does on a connection that is lent."""


def _notifications(pgconn: PGconn) -> list[str]:
    return [notify.extra.decode() for notify in iter(pgconn.notifies, None)]


def _set(scope: str, settings: Mapping[str, str]) -> list[str]:
    return [f"SET {scope} {name} = {value}" for name, value in settings.items()]


def _literal(pgconn: PGconn, value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        if "'" not in value and "\\" not in value:
            return f"'{value}'"
        return bytes(psycopg.pq.Escaping(pgconn).escape_literal(value.encode())).decode()
    if isinstance(value, datetime):
        return f"'{value.astimezone(UTC).isoformat()}'"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(_literal(pgconn, item) for item in value)}]" if value else "'{}'"
    return f"'{value}'"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _error_of(result: PGresult) -> psycopg.Error:
    sqlstate = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
    if sqlstate is None:
        # Not from the server: the connection is gone.
        return psycopg.OperationalError((result.error_message or b"").decode(errors="replace").strip() or "no answer")
    message = (result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    try:
        return psycopg.errors.lookup(sqlstate.decode())(message)
    except KeyError:
        return psycopg.DatabaseError(message)
