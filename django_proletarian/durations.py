"""Durations as a person types them: `30d`, `12h`, `90m`, `45s`, or seconds as a bare number.

Used by the command line. In settings a duration is a number of seconds or a timedelta.
"""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "": 1}  # seconds
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)([dhms]?)", re.ASCII)
# PostgreSQL's dates begin in 4714 BC.
LONGEST = timedelta(days=365_000)


def parse(text: str) -> timedelta:
    """The duration that `text` says. Raises ValueError saying why it says none."""
    written = WRITTEN.fullmatch(text.strip())
    if written is None:
        raise ValueError(f"{text!r} is no duration. Write it as 30d, 12h, 90m or 45s; a bare number is seconds.")
    seconds = float(written[1]) * UNITS[written[2]]
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"{text!r} is longer than {LONGEST.days} days.")
    return timedelta(seconds=seconds)


def shown(seconds: float) -> str:
    """Seconds as a short text in the two largest units that say something: `3d 4h`, `12m 5s`, `0.4s`."""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left = round(seconds)
    parts: list[str] = []
    for unit in "dhms":
        count, left = divmod(left, UNITS[unit])
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)
