"""A payload as a person reads it: indented, each kind of value marked as what it is.

Text is in double quotes, keywords have their colon, and what Python or JSON would not show apart says its type behind
it: dates, UUIDs, characters, tagged values. Nothing of it is markup: whoever shows it escapes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django_proletarian.transit import URI, Char, Keyword, Symbol, TaggedValue

MOST_LEVELS = 50
MOST_SHOWN = 20_000  # characters
SHORT = 80  # characters; a collection that needs no more stands on one line
INDENT = "  "


def readable(payload: object) -> str:
    """The payload in lines. The end of a long one, and what is nested very deep, is left out and shown as "…"."""
    text, written = [], 0
    for piece in _pieces(payload, 0):
        text.append(piece)
        written += len(piece)
        if written > MOST_SHOWN:
            return "".join(text)[:MOST_SHOWN] + "\n…"
    return "".join(text)


def _pieces(value: object, level: int) -> Iterator[str]:
    match value:
        case TaggedValue():
            yield f"tag {_quoted(value.tag)}: "
            yield from _pieces(value.value, level)
        case Mapping():
            entries = ((f"{_on_one_line(key)} ", each) for key, each in value.items())
            yield from _collection("{", "}", entries, len(value), level)
        case list() | tuple():
            yield from _collection("[", "]", (("", each) for each in value), len(value), level)
        case set() | frozenset():
            yield "set "
            yield from _collection("{", "}", (("", each) for each in value), len(value), level)
        case _:
            yield _scalar(value)


def _collection(
    opening: str, closing: str, entries: Iterator[tuple[str, object]], count: int, level: int
) -> Iterator[str]:
    if not count:
        yield opening + closing
        return
    if level >= MOST_LEVELS:
        yield f"{opening}…{closing}"
        return
    if count <= SHORT:
        known = list(entries)
        line = (
            f"{opening}{', '.join(f'{key}{_on_one_line(each)}' for key, each in known)}{closing}"
            if all(_is_short(each) for _, each in known)
            else ""
        )
        if line and len(line) <= SHORT:
            yield line
            return
        entries = iter(known)
    inner = INDENT * (level + 1)
    yield opening
    for key, each in entries:
        yield f"\n{inner}{key}"
        yield from _pieces(each, level + 1)
    yield f"\n{INDENT * level}{closing}"


def _is_short(value: object) -> bool:
    """Whether it may stand on a line with others: no collection, and no long text."""
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return not value
    if isinstance(value, TaggedValue):
        return _is_short(value.value)
    return not isinstance(value, (str, bytes, int)) or isinstance(value, int) or len(value) <= SHORT


def _on_one_line(value: object) -> str:
    """A key, or a short member of a collection."""
    return " ".join(line.strip() for line in "".join(_pieces(value, 0)).split("\n"))


def _quoted(text: str) -> str:
    return json.dumps(str(text), ensure_ascii=False)


# The first type that fits counts: the kinds of text before text, a datetime before a date.
SCALARS: tuple[tuple[type | tuple[type, ...], Callable[[Any], str]], ...] = (
    (bool, lambda value: "true" if value else "false"),
    (Keyword, lambda value: f":{value}"),
    (Symbol, lambda value: f"{value} (symbol)"),
    (Char, lambda value: f"{_quoted(value)} (character)"),
    (URI, lambda value: f"{value} (URI)"),
    (str, _quoted),
    (bytes, lambda value: f"{base64.b64encode(value[:MOST_SHOWN]).decode()} (base64, {len(value):,} bytes)"),
    (UUID, lambda value: f"{value} (UUID)"),
    (datetime, lambda value: f"{value.isoformat(sep=' ', timespec='milliseconds')} (instant)"),
    (date, lambda value: f"{value.isoformat()} (date)"),
    (time, lambda value: f"{value.isoformat()} (time)"),
    (timedelta, lambda value: f"{value} (duration)"),
    (Decimal, lambda value: f"{value} (decimal)"),
    (Fraction, lambda value: f"{value} (ratio)"),
    ((int, float), str),
)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    for kind, shown in SCALARS:
        if isinstance(value, kind):
            return shown(value)
    return repr(value)
