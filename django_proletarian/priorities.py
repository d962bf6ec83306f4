"""Priorities as queue names: `"mail+10"` holds the jobs of queue `"mail"` that have priority 10.

A level is a queue like any other, so the original's index serves it and so can a Clojure worker. Priority 0 is the
queue itself. Used by `enqueue`, by workers, who drain a queue's levels from high to low, and wherever queue and
priority are shown apart. All functions take names in Python's form and in the stored one.
"""

from __future__ import annotations

import functools
import re

from django_proletarian.names import PlainName

LOWEST, HIGHEST = -100, 100  # as Django's tasks have them; a worker looks at every level that has jobs
# No zero in front and nothing beyond the limits, so that a level has one name only.
LEVEL = re.compile(r"(.+)([+-])([1-9][0-9]?|100)", re.DOTALL)
NAMELESS = ("", ":")  # of which nothing would be left but the number


def level(queue: str, priority: int) -> str:
    """The queue that holds the jobs of `queue` with this priority. Raises ValueError for a priority out of range."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not LOWEST <= priority <= HIGHEST:
        raise ValueError(f"priority must be a whole number from {LOWEST} to {HIGHEST}, not {priority!r}")
    if priority == 0:
        return queue
    if queue in NAMELESS:
        raise ValueError(f"priority must be 0 for the queue {queue!r}, which has no name to put {priority!r} behind")
    name = f"{queue}{priority:+d}"
    return PlainName(name) if isinstance(queue, PlainName) else name


@functools.lru_cache(maxsize=1000, typed=True)
def split(name: str) -> tuple[str, int]:
    """Queue and priority that a name stands for: `"mail+10"` is `("mail", 10)`, `"mail"` is `("mail", 0)`."""
    found = LEVEL.fullmatch(name)
    if found is None or found[1] in NAMELESS:
        return name, 0
    queue = PlainName(found[1]) if isinstance(name, PlainName) else found[1]
    return queue, int(found[2] + found[3])


@functools.lru_cache(maxsize=100, typed=True)
def levels(queue: str) -> tuple[str, ...]:
    """All names under which jobs of `queue` may wait, the highest priority first."""
    return tuple(level(queue, priority) for priority in range(HIGHEST, LOWEST - 1, -1))
