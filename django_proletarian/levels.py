"""Which priorities of its queues a worker looks at: those that have due jobs, and those that had lately.

Levels come and go with their jobs, so they are read from the index now and then, from one name to the next. One
`Levels` is shared by all threads of a worker.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString

from django_proletarian import names, priorities
from django_proletarian.connection import ClaimConnection, Statement
from django_proletarian.tables import Tables, for_tables

INTERVAL = 0.25  # seconds; while jobs run, the longest that a job waits for its level to be noticed
MOST_OF_TIME = 0.05  # an old transaction keeps entries of jobs that are gone, and then a look takes longer
WARM = 10.0  # seconds that a level is still tried at each claim after it had a due job

# One look into the index for each name, and with it comes the earliest job's date, since DISTINCT would read all.
# Whatever the collation, digits stand before letters: so all levels of "mail" lie between "mail+" and "mail+a". Names
# of other kinds may lie there too, such as "mail-box"; where they are many, each possible level is looked for instead.
LEVELS: LiteralString = """
RECURSIVE passed AS (
    SELECT part.low, part.low || 'a' AS high, next.queue, next.process_at, 1 AS step
      FROM (SELECT asked || sign AS low FROM unnest($1) AS asked, unnest('{{{{+,-}}}}'::text[]) AS sign) AS part
     CROSS JOIN LATERAL (
        SELECT queue, process_at FROM {job}
         WHERE queue > part.low AND queue < part.low || 'a' ORDER BY queue, process_at LIMIT 1) AS next
     UNION ALL
    SELECT passed.low, passed.high, next.queue, next.process_at, passed.step + 1
      FROM passed
     CROSS JOIN LATERAL (
        SELECT queue, process_at FROM {job}
         WHERE queue > passed.queue AND queue < passed.high ORDER BY queue, process_at LIMIT 1) AS next
     WHERE passed.step < {{most_steps}}
), levels AS (
    SELECT queue, process_at FROM passed WHERE left(queue, length(low)) = low
     UNION ALL
    SELECT next.queue, next.process_at
      FROM passed
     CROSS JOIN generate_series(1, 100) AS number
     CROSS JOIN LATERAL (
        SELECT queue, process_at FROM {job}
         WHERE queue = passed.low || number ORDER BY process_at LIMIT 1) AS next
     WHERE passed.step = {{most_steps}}
)"""
MOST_STEPS = 300  # of which levels can be a hundred
FIND_LEVELS: LiteralString = """
WITH {{levels}}
SELECT DISTINCT queue FROM levels
 WHERE queue ~ '[+-]([1-9][0-9]?|100)$' AND queue <> ALL ($2) AND process_at <= COALESCE($3, statement_timestamp())
"""


class Levels:
    """The queues to claim from, in order, their priorities included.

    `own` are names of queues in their own right, such as "eu-west-1", which look like another queue's level.
    """

    def __init__(self, tables: Tables, queues: Sequence[str], own: Collection[str] = ()) -> None:
        self._tables = tables
        self.asked = [names.to_stored(queue) for queue in queues]
        # Those that look like levels: so that the statements are told of few.
        self.own = sorted({stored for stored in map(names.to_stored, (*own, *queues)) if priorities.split(stored)[1]})
        self.queues = tuple(queues)  # to claim from; replaced whole, by any thread
        self._lock = threading.Lock()  # guards the two below
        self._warm: dict[str, float] = {}  # names of levels, stored, with when each is no longer tried
        self._due_at = 0.0  # when the next look is; as above, in time.monotonic()'s seconds

    @property
    def are_unknown(self) -> bool:
        """Whether nobody has looked yet."""
        return self._due_at == 0

    def look_if_due(self, claim: ClaimConnection, now: datetime | None, *, first: Sequence[str] = ()) -> bool:
        """`look`, unless somebody has lately; return whether it did, and so has sent `first`."""
        with self._lock:
            if time.monotonic() < self._due_at:
                return False
            self._due_at = time.monotonic() + INTERVAL  # no other thread need look
        self.look(claim, now, first=first)
        return True

    def look(self, claim: ClaimConnection, now: datetime | None, *, first: Sequence[str] = ()) -> bool:
        """Look which levels have due jobs; return whether one was not known.

        `now` replaces the database's clock. `first` are statements to send in the same message before.
        """
        began = time.monotonic()
        rows = claim.send(*first, claim.call(find_levels_statement(self._tables), self.asked, self.own, now))
        ended = time.monotonic()
        found = [stored for (stored,) in rows]
        with self._lock:
            self._due_at = ended + max(INTERVAL, (ended - began) / MOST_OF_TIME)
            known = {stored for stored, until in self._warm.items() if until > ended}
            self._warm = {stored: until for stored, until in self._warm.items() if until > ended}
            self._warm |= dict.fromkeys(found, ended + WARM)
            self.queues = tuple(self._in_order())
        return not known.issuperset(found)

    def _in_order(self) -> list[str]:
        """The asked queues one after another, each from its highest level to its lowest."""
        ordered = []
        for queue in self.asked:
            own = [(0, queue)]
            own += [
                (priorities.split(stored)[1], stored) for stored in self._warm if priorities.split(stored)[0] == queue
            ]
            ordered += [names.from_stored(stored) for _, stored in sorted(own, reverse=True)]
        return ordered


@functools.cache
def find_levels_statement(tables: Tables) -> Statement:
    """The look at which levels have due jobs."""
    text = for_tables(FIND_LEVELS, tables).format(levels=levels_of(tables))
    return Statement("proletarian_find_levels", ("text[]", "text[]", "timestamptz"), text)


def levels_of(tables: Tables) -> str:
    """SQL for a WITH clause: `levels`, a row of (queue, process_at) for each level of the queues of the array $1."""
    return for_tables(LEVELS, tables).format(most_steps=MOST_STEPS)
