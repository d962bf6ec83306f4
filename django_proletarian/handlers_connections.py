"""Django's connections of a worker thread, which handlers use as views do, and which are tidied around each job.

Entered by the worker around whatever is the user's: handlers and callbacks.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


class HandlersConnections:
    """The connections that are open in this thread: no stale one at a handler's start, nothing left open at its end.

    Used by the thread that made it, one `with` at a time. To look through all of Django's connections takes longer than
    the rest of a small job, so it is done once; from then on those that open are told by Django's signal.
    """

    def __init__(self) -> None:
        self._open = [connection for connection in connections.all(initialized_only=True) if _is_in_use(connection)]
        self._outer: list[BaseDatabaseWrapper] = []  # in whose transactions all of this takes place, as in a TestCase
        self._around: list[BaseDatabaseWrapper] | None = None  # the open ones of the handler that this runs within

    def __enter__(self) -> None:
        self._around = getattr(_entered, "connections", None)
        _entered.connections = self._open
        if self._open:
            self._outer = [connection for connection in self._open if connection.in_atomic_block]
            for connection in self._open:
                if not connection.force_debug_cursor:  # else assertNumQueries is counting, and reads the log
                    connection.queries_log.clear()
                if connection not in self._outer:
                    connection.close_if_unusable_or_obsolete()

    def close(self) -> None:
        """Close those that are open: a handler that was interrupted anywhere may have left them in any state."""
        for connection in self._open:
            if connection not in self._outer:
                connection.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.connections = self._around
        if not self._open:
            return
        opened, self._open = self._open, []
        for connection in opened:
            if connection in self._outer:
                self._open.append(connection)
            elif _has_open_transaction(connection):
                # The thread's next job must not run inside it, nor be undone with it.
                connection.close()
                del connections[connection.alias]
            else:
                connection.close_if_unusable_or_obsolete()
                if _is_in_use(connection):
                    self._open.append(connection)
        self._outer = []


class CallersConnections(HandlersConnections):
    """The connections of a thread that is not a worker's: those who opened them look after them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass

    def close(self) -> None:
        pass


# .connections: the open ones of the HandlersConnections that this thread is in, or None. Each thread sees its own.
_entered = threading.local()


def _note_opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    opened: list[BaseDatabaseWrapper] | None = getattr(_entered, "connections", None)
    if opened is not None and connection.alias in connections.settings and connection not in opened:
        opened.append(connection)


connection_created.connect(_note_opened, dispatch_uid="django_proletarian.handlers_connections")


def _is_in_use(connection: BaseDatabaseWrapper) -> bool:
    return connection.connection is not None or connection.in_atomic_block


def _has_open_transaction(connection: BaseDatabaseWrapper) -> bool:
    return bool(connection.in_atomic_block or connection.autocommit != connection.settings_dict["AUTOCOMMIT"])
