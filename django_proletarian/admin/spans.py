"""Years, months, days and hours in the viewer's time zone, for going down to a date step by step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils.formats import date_format
from django.utils.timezone import get_current_timezone

# As ISO 8601 writes a date, as far as it goes: 2026, 2026-12, 2026-12-02, 2026-12-02T14.
WRITTEN = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d))?)?)?", re.ASCII)
YEARS = 20  # before and after this one


@dataclass(frozen=True, slots=True)
class Span:
    """One year, month, day or hour: as many numbers as its date has."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, key: str) -> Span | None:
        """The span that `key` names; None if it names none."""
        written = WRITTEN.fullmatch(key)
        if written is None:
            return None
        span = cls(tuple(int(part) for part in written.groups() if part is not None))
        try:
            span.bounds  # noqa: B018 # is there such a day?
        except (ValueError, OverflowError):
            return None
        return span

    @property
    def key(self) -> str:
        year, *rest = self.parts
        return f"{year:04}" + "".join(f"{mark}{part:02}" for mark, part in zip("--T", rest, strict=False))

    @property
    def bounds(self) -> tuple[datetime, datetime]:
        """Its beginning and its end, which is the next one's beginning; aware.

        Raises ValueError or OverflowError if there is no such date.
        """
        zone = get_current_timezone()
        year, month, day, hour = (*self.parts, *(1, 1, 0)[len(self.parts) - 1 :])
        if len(self.parts) == 4:
            # Counted from the day's beginning, since an hour may come twice or not at all.
            begin = datetime(year, month, day, hour, tzinfo=zone).astimezone(UTC)
            return begin, begin + timedelta(hours=1)
        begin = datetime(year, month, day, tzinfo=zone)
        match len(self.parts):
            case 1:
                end = datetime(year + 1, 1, 1, tzinfo=zone)
            case 2:
                end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
            case _:
                following = datetime(year, month, day) + timedelta(days=1)  # by the calendar
                end = following.replace(tzinfo=zone)
        return begin.astimezone(UTC), end.astimezone(UTC)

    @property
    def words(self) -> str:
        year, month, day, hour = (*self.parts, *(1, 1, 0)[len(self.parts) - 1 :])
        begin = datetime(year, month, day, hour)
        match len(self.parts):
            case 1:
                return str(begin.year)
            case 2:
                return date_format(begin, "YEAR_MONTH_FORMAT")
            case 3:
                return date_format(begin, "MONTH_DAY_FORMAT")
            case _:
                return date_format(begin, "H:00")

    @property
    def way_down(self) -> list[Span]:
        """The spans that it lies in, the largest first, and itself."""
        return [Span(self.parts[:count]) for count in range(1, len(self.parts) + 1)]


def years_around(year: int) -> list[Span]:
    return [Span((each,)) for each in range(year - YEARS, year + YEARS + 1)]


def spans_within(span: Span) -> list[Span]:
    """The next smaller spans; none within an hour."""
    if len(span.parts) == 4:
        return []
    numbers = {1: range(1, 13), 2: range(1, 32), 3: range(24)}[len(span.parts)]
    within = [Span((*span.parts, number)) for number in numbers]
    return [each for each in within if Span.parse(each.key) is not None]
