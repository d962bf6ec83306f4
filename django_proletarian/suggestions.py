"""The near name that was meant, for the messages about one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`Did you mean "shop/mail"? ` with a space behind it, to stand before a remedy; nothing if no name is near."""
    near = near_names(given, known)
    return f"Did you mean {' or '.join(chr(34) + name + chr(34) for name in near)}? " if near else ""


def near_names(given: str, known: Iterable[str]) -> list[str]:
    """At most two of `known` that differ from `given` by little, or only in upper and lower case; the nearest first."""
    by_lower_case = {name.lower(): name for name in sorted(known, reverse=True) if name != given}
    return [by_lower_case[name] for name in get_close_matches(given.lower(), by_lower_case, n=2, cutoff=0.8)]
