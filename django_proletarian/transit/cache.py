"""Transit's rolling cache: which strings go into it, and the codes that stand for them afterwards.

Called by reader.py and writer.py. Each keeps a cache for the text at hand, and both must put the same
strings into it in the same order; when all codes are taken, both forget everything and begin anew.
"""

from __future__ import annotations

# "^" and one or two digits of base 44, the digits starting at chr(48).
_DIGITS = [chr(48 + n) for n in range(44)]
CODES = [f"^{low}" for low in _DIGITS] + [f"^{high}{low}" for high in _DIGITS[1:] for low in _DIGITS]

# What follows "~" in keywords, symbols and tags, which are cached anywhere; other strings only as keys of a map.
CACHED_ANYWHERE = frozenset(":$#")


def is_long(text: str) -> bool:
    """Whether `text` is worth a code: more than three UTF-16 units, as Java counts."""
    return len(text) > 3 or (len(text) > 1 and not text.isascii() and len(text.encode("utf-16-le")) > 6)
