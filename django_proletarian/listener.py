"""Wakes an idle worker when a job is enqueued: one thread and one connection that listens, for a whole process.

While a worker has an idle thread, its listener holds an exclusive advisory lock for each of its queues. `enqueue` tries
the shared lock of the same key until its commit, and sends a NOTIFY only if it can't have it: while everybody is busy,
nothing is sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence

import psycopg
from django.db import Error as DjangoDatabaseError

from django_proletarian.connection import PrivateConnection
from django_proletarian.inserts import sleepers_key
from django_proletarian.outage import pauses
from django_proletarian.tables import Tables

# Seconds between looks at whether another process that holds our locks, and so lets us be notified, still does.
LOOK_AGAIN = 10.0


class Listener:
    """Listens for jobs enqueued to some queues, and calls `wake` for each, which must not block.

    `start`, `doze`, `awake` and `stop` are called by the worker's threads; all else runs in the listener's own.
    """

    def __init__(
        self, database: str, name: str, tables: Tables, stored_queues: Sequence[str], wake: Callable[[], object]
    ) -> None:
        self._connection = PrivateConnection(database, name)
        self._keys = frozenset(sleepers_key(tables, queue) for queue in stored_queues)
        self._payloads = frozenset(map(str, self._keys))
        self._held: frozenset[int] = frozenset()  # keys whose lock is ours; the listener's own
        self._wake = wake
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._bell, self._rope = os.pipe()  # ringing interrupts the listener's wait
        self._changed = threading.Condition()  # guards the five below
        self._listening = False  # written by the listener
        self._covered = False  # every enqueue from now on is heard; written by the listener, taken back by `awake`
        self._answers = 0  # to `doze`; written by the listener
        self._dozing = False  # some thread is idle; written by the worker's threads
        self._stopping = False  # written by the worker's threads

    def start(self) -> None:
        """Start listening, some time soon: until then `doze` says no."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and return when the connection is closed."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._ring()
        self._thread.join()
        os.close(self._bell)
        os.close(self._rope)

    def doze(self) -> bool:
        """Say that a thread is idle; return whether `wake` will be called for every job enqueued from now on.

        False while nothing can be heard, or while a transaction that has enqueued is open: then poll, and ask again.
        """
        with self._changed:
            if self._covered or not self._listening:
                return self._covered
            self._dozing, asked = True, self._answers
            self._ring()
            self._changed.wait_for(lambda: self._answers > asked or not self._listening, timeout=5)
            return self._covered

    def awake(self) -> None:
        """Say that no thread is idle any more."""
        with self._changed:
            if not self._dozing:
                return
            self._dozing = self._covered = False
        self._ring()

    def _ring(self) -> None:
        os.write(self._rope, b"!")

    def _run(self) -> None:
        pause = pauses()
        try:
            while not self._stopping:
                try:
                    if not self._connection.keeps_session:
                        break  # a pooler passes no notifications on
                    self._listen()
                except (psycopg.Error, DjangoDatabaseError):
                    # The threads that claim tell about an outage. Here it is enough that they poll meanwhile.
                    self._connection.close()
                    if self._listening:
                        pause = pauses()
                    self._hear(listening=False)
                    self._wake()
                    self._pause(next(pause))
        finally:
            self._connection.close()
            self._hear(listening=False)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=seconds)

    def _hear(self, *, listening: bool, covered: bool = False) -> None:
        with self._changed:
            self._listening = listening
            # A thread that woke up while the answer was on its way has taken it back.
            self._covered = covered and self._dozing
            self._answers += 1
            self._changed.notify_all()

    def _listen(self) -> None:
        self._held = frozenset()
        self._connection.send("LISTEN proletarian")
        self._hear(listening=True)
        while not self._stopping:
            if self._dozing and not self._covered:
                self._hear(listening=True, covered=self._cover())
            elif self._held and not self._dozing:
                self._uncover()
            heard = self._connection.wait_for_notify(self._bell, LOOK_AGAIN)
            by_others = self._covered and self._held != self._keys
            if by_others:
                # They may have woken up, or be gone: whoever dozes must ask again.
                self._hear(listening=True)
            if by_others or not self._payloads.isdisjoint(heard):
                self._wake()
        if self._held:
            self._uncover()

    def _cover(self) -> bool:
        """Take the locks that nobody has; return whether each is ours or another sleeping worker's."""
        self._held |= self._locked("pg_try_advisory_lock", self._keys - self._held)
        # A shared lock is to be had where none but enqueuing transactions have one.
        enqueuing = self._locked("pg_try_advisory_lock_shared", self._keys - self._held)
        self._locked("pg_advisory_unlock_shared", enqueuing)
        return not enqueuing

    def _uncover(self) -> None:
        """Let the locks go, and tell other sleepers of the same queues to take them."""
        self._connection.send(
            "SELECT pg_advisory_unlock_all()", *(f"NOTIFY proletarian, '{key}'" for key in self._held)
        )
        self._held = frozenset()

    def _locked(self, function: str, keys: Iterable[int]) -> frozenset[int]:
        """The keys for which `function` said yes."""
        if not keys:
            return frozenset()
        # Numbers, and the names of functions: nothing here comes from outside.
        asked = ", ".join(map(str, keys))
        rows = self._connection.send(f"SELECT key FROM unnest('{{{asked}}}'::bigint[]) AS key WHERE {function}(key)")  # noqa: S608
        return frozenset(int(key) for (key,) in rows)
