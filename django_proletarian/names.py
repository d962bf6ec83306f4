"""Queue names, job types and statuses: Python's `"shop/mail"` and the `":shop/mail"` that is stored.

The original prints Clojure keywords, and keywords print with their colon. In Python there is no colon. Names that
were strings in Clojure are stored as they are, without one; they come to Python as `PlainName`, and go back the same.
Used by the store, the model field, the registry of handlers and the command line.
"""

from __future__ import annotations

import functools


class PlainName(str):
    """A name stored without a colon, as the original stores strings (and nil, as the empty string).

    It equals its text, as any str does; only what is stored differs.
    """

    __slots__ = ()


# Asked for every job, and of few names. `typed`, since a PlainName equals the str that is stored otherwise.
@functools.lru_cache(maxsize=1000, typed=True)
def to_stored(name: str) -> str:
    """The text that stands in the row. A name with a leading colon is stored already; the empty name is plain."""
    if isinstance(name, PlainName) or name == "" or name.startswith(":"):
        return str(name)
    return f":{name}"


@functools.lru_cache(maxsize=1000)
def from_stored(stored: str) -> str:
    """The name in Python; a `PlainName` if the row has no colon. A colon alone is plain too: no keyword is empty."""
    if len(stored) > 1 and stored.startswith(":"):
        name = stored[1:]
        # "::a" would lose a colon on its way back, since a leading colon reads as already stored.
        return PlainName(stored) if name.startswith(":") else name
    return PlainName(stored)


def parse(text: str) -> str:
    """A name as a person types it: `mail` and `:mail` are the keyword, `"mail"` in double quotes the plain string.

    The quotes are EDN's, which is how Clojure itself writes the difference.
    """
    if len(text) >= 2 and text.startswith('"') and text.endswith('"'):
        return PlainName(text[1:-1])
    return from_stored(to_stored(text))


def shown(name: str) -> str:
    """A name as `parse` reads it back: plain names in double quotes."""
    return f'"{name}"' if isinstance(name, PlainName) else name
