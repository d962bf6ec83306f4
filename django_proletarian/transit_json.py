"""JSON text to a tree of lists and scalars, and back; at any depth, wherever the caller stands on its stack.

Called by transit.py. An array is a list, an object a tuple of pairs (so that no duplicate key is lost), the rest are
Python's None, bool, int, float and str.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from django_proletarian.transit_types import Refused

MAX_DEPTH = 10_000  # levels of nesting; far above what anyone means, far below what fills a C stack
MAX_DIGITS = 4_300  # of one number; the default of sys.set_int_max_str_digits, and reading more takes quadratic time


def parse(text: str) -> object:
    """Return the tree of `text`.

    Raises Refused, or json.JSONDecodeError, whose message holds nothing of `text` (but whose `doc` does).
    """
    _refuse_lone_surrogates(text)
    try:
        return _DECODER.decode(text)
    except RecursionError:  # how deep json's own scanner goes depends on the Python and on the caller's depth
        return _parse_deep(text)


def write(tree: object) -> str:
    """Return `tree`, of lists and scalars only, as JSON without spaces."""
    try:
        return _ENCODER.encode(tree)
    except RecursionError:
        return _write_deep(tree)


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise Refused(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if value - value != 0:  # 1e999 is infinite in Python; Transit writes infinity as "~zINF"
        raise Refused("a number is outside the range of a double")
    return value


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_constant, object_pairs_hook=tuple)
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))

# An escaped surrogate pair, or (group 1) the beginning of a surrogate without its other half, or any other escape.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL)


def _refuse_lone_surrogates(text: str) -> None:
    """Half a character can be neither stored, printed nor sent on."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            position = error.start
        else:
            position = None
        if position is not None:
            raise Refused(f"a lone surrogate at character {position}")
    if "\\ud" in text or "\\uD" in text:
        for escape in _ESCAPE.finditer(text):
            if escape[1]:
                raise Refused(f"a lone surrogate at character {escape.start()}")


_SPACE = re.compile(r"[ \t\n\r]*")


def _parse_deep(text: str) -> object:
    """_DECODER.decode with a stack of our own; half as fast."""
    outer: list[tuple[list[object], str]] = []
    inner: list[object] = []  # the container being read; at first one that the whole text goes into
    closer = ""
    at = _skip_space(text, 0)
    while True:
        char = text[at : at + 1]
        if char and char in "[{":
            if len(outer) >= MAX_DEPTH:
                raise Refused(f"nested deeper than {MAX_DEPTH} levels")
            outer.append((inner, closer))
            inner, closer = [], "]" if char == "[" else "}"
            at = _skip_space(text, at + 1)
            if text[at : at + 1] != closer:
                continue
        else:
            if closer == "}" and len(inner) % 2 == 0 and char != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
            value, at = _DECODER.raw_decode(text, at)
            inner.append(value)
            at = _skip_space(text, at)
        while closer and text[at : at + 1] == closer and (closer == "]" or len(inner) % 2 == 0):
            whole = inner if closer == "]" else tuple(zip(inner[::2], inner[1::2], strict=True))
            inner, closer = outer.pop()
            inner.append(whole)
            at = _skip_space(text, at + 1)
        if not closer:
            break
        delimiter = ":" if closer == "}" and len(inner) % 2 else ","
        if text[at : at + 1] != delimiter:
            raise json.JSONDecodeError(f"Expecting '{delimiter}' delimiter", text, at)
        at = _skip_space(text, at + 1)
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return inner[0]


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _write_deep(tree: object) -> str:
    """_ENCODER.encode with a stack of our own."""
    parts: list[str] = []
    outer = []
    items = iter((tree,))
    while True:
        for item in items:
            if type(item) is list:
                parts.append("[")
                outer.append(items)
                items = iter(item)
                break
            parts.append(_ENCODER.encode(item))
            parts.append(",")
        else:
            if not outer:
                return "".join(parts[:-1])
            if parts[-1] == ",":
                parts.pop()
            parts.append("]")
            parts.append(",")
            items = outer.pop()
