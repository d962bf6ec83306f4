"""Values that Transit writes as one string, and the three tags that we put before one: text to value and back.

Called by reader.py and writer.py, through the tables at the end. The readers take what follows "~" and
the code, or the string under the tag. They raise Refused; or ValueError, ArithmeticError or LookupError, whose
messages may hold the text and must not be shown.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite, isinf
from typing import Any
from uuid import UUID

from django_proletarian.transit.text import MAX_DIGITS
from django_proletarian.transit.values import URI, Char, Keyword, Refused, Symbol

MAP = "^ "  # the first item of an array that is a map
PREFIXES = frozenset("~^`")  # a string that begins with one of these is written with a "~" before it
STRUCTURE_TAGS = frozenset({"set", "list", "cmap", "ratio"})

_TOO_LARGE = 10**MAX_DIGITS
_MAX_EXPONENT = 2**31 - 1  # java.math.BigDecimal's
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,10})?")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.([0-9]+))?)?")
_DURATION = re.compile(
    r"([+-])?P(?=.)(?:([+-]?[0-9]+)D)?"
    r"(?:T(?=.)(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?(?:([+-])?([0-9]+)(?:\.([0-9]+))?S)?)?"
)


def read_integer(text: str) -> int:
    if len(text) > MAX_DIGITS + 1:
        raise Refused(f"a number has more than {MAX_DIGITS} digits")
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return int(text)


def write_integer(value: int) -> str:
    """Also right for map keys; values within 53 bits are plain JSON numbers instead."""
    if abs(value) >= _TOO_LARGE:
        raise Refused(f"an int of more than {MAX_DIGITS} digits")
    return f"~i{value}" if -(2**63) <= value < 2**63 else f"~n{value}"


def read_double(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    value = float(text)
    if not isfinite(value):
        raise Refused("a number is outside the range of a double")
    return value


def write_double(value: float) -> str:
    """Spelt as Java's Double.toString does; for map keys and what is not finite, the rest are JSON numbers."""
    if not isfinite(value):
        return "~zNaN" if not isinf(value) else "~zINF" if value > 0 else "~z-INF"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"~d{value!r}"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    fraction = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"~d{'-' if sign else ''}{digits[0]}.{fraction}E{int(exponent) + len(digits) - 1}"


def read_special(text: str) -> float:
    return {"NaN": float("nan"), "INF": float("inf"), "-INF": float("-inf")}[text]


def read_decimal(text: str) -> Decimal:
    if len(text) > MAX_DIGITS:
        raise Refused(f"a number has more than {MAX_DIGITS} digits")
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    value = Decimal(text)
    if not value.is_finite() or abs(int(value.as_tuple().exponent)) > _MAX_EXPONENT:
        raise Refused("a decimal's exponent takes more than 32 bits")
    return value


def write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Refused("a Decimal that is NaN or infinite, which Clojure's can't be; pass a float")
    text = str(value)
    if len(text) > MAX_DIGITS:
        raise Refused(f"a Decimal of more than {MAX_DIGITS} digits")
    if abs(int(value.as_tuple().exponent)) > _MAX_EXPONENT:
        raise Refused("a Decimal whose exponent takes more than 32 bits")
    return f"~f{text}"


def read_boolean(text: str) -> bool:
    return {"t": True, "f": False}[text]


def read_null(text: str) -> None:
    if text:
        raise ValueError


def read_char(text: str) -> Char:
    if len(text) != 1 or text > "\uffff":
        raise Refused("a char is not one character of one UTF-16 unit")
    return Char(text)


def write_char(value: Char) -> str:
    return f"~c{read_char(value)}"


def read_uuid(text: str) -> UUID:
    if not _UUID.fullmatch(text):  # Python takes dashes anywhere
        raise ValueError
    return UUID(text)


def read_bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def write_bytes(value: bytes | bytearray | memoryview) -> str:
    return f"~b{b64encode(value).decode()}"


def read_instant(text: str) -> datetime:
    """Milliseconds since 1970 to a datetime in UTC."""
    milliseconds = read_integer(text)
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise Refused("an instant is outside Python's years 1 to 9999") from None


def write_instant(value: datetime) -> str:
    """Whole milliseconds, rounded towards the past, as java.time.Instant.toEpochMilli does."""
    if value.utcoffset() is None:
        raise Refused("a naive datetime is no moment in time; pass an aware one, such as timezone.make_aware(value)")
    milliseconds = (value - _EPOCH) // _MILLISECOND
    read_instant(str(milliseconds))  # year 1 or 9999 in some zone may be another year in UTC
    return f"~m{milliseconds}"


def read_verbose_instant(text: str) -> datetime:
    """RFC 3339 to a datetime in UTC."""
    match = _INSTANT.fullmatch(text)
    if not match:
        raise Refused("an instant is not a date and time of the years 1 to 9999 with an offset")
    seconds, fraction, offset = match.groups()
    try:
        local = datetime.fromisoformat(f"{seconds}.{_microseconds(fraction):06}{offset}")
        return local.astimezone(UTC)
    except OverflowError:
        raise Refused("an instant is outside Python's years 1 to 9999") from None


def read_date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise Refused("a time/date is not a date of the years 1 to 9999, as 2023-11-14")
    return date.fromisoformat(text)


def read_time(text: str) -> time:
    match = _TIME.fullmatch(text)
    if not match:
        raise Refused("a time/time is not a time of day without a zone, as 22:13:20.5")
    return time.fromisoformat(text.partition(".")[0]).replace(microsecond=_microseconds(match[1]))


def write_time(value: time) -> str:
    if value.tzinfo is not None:
        raise Refused("a time with a zone; pass an aware datetime, or value.replace(tzinfo=None)")
    return value.isoformat()


def read_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if not match:
        raise Refused("a time/duration is not an ISO 8601 duration of days or smaller units, as PT1H30M")
    whole_sign, days, hours, minutes, seconds_sign, seconds, fraction = match.groups(default="")
    total = ((read_integer(days or "0") * 24 + read_integer(hours or "0")) * 60 + read_integer(minutes or "0")) * 60
    rest = read_integer(seconds or "0") * 1_000_000 + _microseconds(fraction)
    microseconds = total * 1_000_000 + (-rest if seconds_sign == "-" else rest)
    try:
        return timedelta(microseconds=-microseconds if whole_sign == "-" else microseconds)
    except OverflowError:
        raise Refused("a time/duration is outside a timedelta's 999999999 days") from None


def write_duration(value: timedelta) -> str:
    """Spelt as java.time.Duration.toString does: hours, minutes and seconds, each with the sign."""
    microseconds = value // _MICROSECOND
    sign = "-" if microseconds < 0 else ""
    seconds, microseconds = divmod(abs(microseconds), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{sign}{hours}H" if hours else ""
    if minutes:
        text += f"{sign}{minutes}M"
    if seconds or microseconds or not text:
        fraction = f".{microseconds:06}".rstrip("0") if microseconds else ""
        text += f"{sign}{seconds}{fraction}S"
    return f"PT{text}"


def _microseconds(fraction: str | None) -> int:
    """Digits after the decimal point of a second; Python stops at six, where Java goes on to nine."""
    fraction = fraction or ""
    if fraction[6:].strip("0"):
        raise Refused("a time has fractions smaller than a microsecond, which Python can't hold")
    return int(fraction[:6].ljust(6, "0"))


READERS: dict[str, Callable[[str], object]] = {
    ":": Keyword,
    "$": Symbol,
    "r": URI,
    "c": read_char,
    "i": read_integer,
    "n": read_integer,
    "d": read_double,
    "f": read_decimal,
    "z": read_special,
    "?": read_boolean,
    "_": read_null,
    "u": read_uuid,
    "b": read_bytes,
    "m": read_instant,
    "t": read_verbose_instant,
    "'": str,
}

WRITERS: dict[type, Callable[[Any], str]] = {
    Keyword: "~:{}".format,
    Symbol: "~${}".format,
    URI: "~r{}".format,
    Char: write_char,
    UUID: "~u{}".format,
    Decimal: write_decimal,
    bytes: write_bytes,
    bytearray: write_bytes,
    memoryview: write_bytes,
    datetime: write_instant,
}

TAG_READERS: dict[str, Callable[[str], object]] = {
    "time/date": read_date,
    "time/time": read_time,
    "time/duration": read_duration,
}

TAG_WRITERS: dict[type, tuple[str, Callable[[Any], str]]] = {
    date: ("time/date", date.isoformat),
    time: ("time/time", write_time),
    timedelta: ("time/duration", write_duration),
}
