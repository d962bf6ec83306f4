"""JSON text to a tree of lists and scalars, and back; at any depth, wherever the caller stands on its stack.

Called by transit.py. An array is a list, an object a tuple of pairs (so that no duplicate key is lost), the rest are
Python's None, bool, int, float and str.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NoReturn, cast

from django_proletarian.transit.values import Refused

# Levels of nesting, a set or tagged value being one. Python hashes nested tuples by recursion in C without any limit.
MAX_DEPTH = 1_200
MAX_DIGITS = 4_300  # of one number; the default of sys.set_int_max_str_digits, and reading more takes quadratic time


def parse(text: str) -> object:
    """Return the tree of `text`.

    Raises Refused, or json.JSONDecodeError, whose message holds nothing of `text` (but whose `doc` does).
    """
    _refuse_lone_surrogates(text)
    if len(text) > _SHALLOW and text.count("[") + text.count("{") > _SHALLOW:
        depth = _depth(text)
        if depth > 2 * MAX_DEPTH + 2:  # a set, for one, takes two arrays
            raise Refused(f"nested deeper than {MAX_DEPTH} levels")
        if depth > _SHALLOW:
            return _parse_deep(text)
    try:
        # What JSONDecoder.decode does after the spaces, at half the cost for a small text.
        tree, end = _DECODER.scan_once(text, 0)  # type: ignore[attr-defined]
    except StopIteration:
        pass
    except RecursionError:  # pragma: no cover # until Python 3.11: the caller is near the limit
        return _parse_deep(text)
    else:
        if end == len(text):
            return tree
    try:
        return _DECODER.decode(text)
    except RecursionError:  # pragma: no cover # as above
        return _parse_deep(text)


def write(tree: object, depth: int) -> str:
    """Return `tree`, of lists and scalars only and at most `depth` lists deep, as JSON without spaces."""
    if depth > _SHALLOW:
        return _write_deep(tree)
    try:
        return "".join(_ENCODE(tree, 0))
    except RecursionError:  # pragma: no cover # as above
        return _write_deep(tree)


# The json module recurses in C, up to limits that only stacks of several megabytes hold; threads may have 128 KB.
_SHALLOW = 100

_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(set(range(256)) - _STEP.keys())


def _depth(text: str) -> int:
    """How many levels json would go down into `text`, or more if it would find a mistake before."""
    without_escapes = text.replace("\\\\", "").replace('\\"', "")  # so that each quote begins or ends a string
    outside_strings = "".join(without_escapes.split('"')[::2])
    return max(accumulate(map(_STEP.__getitem__, outside_strings.encode().translate(None, _NO_STEPS))), default=0)


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


def _encoding() -> Callable[[object, int], Iterable[str]]:
    """What _ENCODER makes anew for each text, which takes longer than to write a small one."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # pragma: no cover # PyPy
        return lambda tree, _: _ENCODER.iterencode(tree)
    quote = json.encoder.encode_basestring
    return cast(
        "Callable[[object, int], Iterable[str]]",
        make(None, _ENCODER.default, quote, None, ":", ",", False, False, False),
    )


_ENCODE = _encoding()

# An escaped surrogate pair, or (group 1) the beginning of a surrogate without its other half, or any other escape.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL)


def _refuse_lone_surrogates(text: str) -> None:
    """Half a character can be neither stored, printed nor sent on."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"a lone surrogate at character {error.start}") from None
    if "\\u" in text:
        for escape in _ESCAPE.finditer(text):
            if escape[1]:
                raise Refused(f"a lone surrogate at character {escape.start()}")


_SPACE = re.compile(r"[ \t\n\r]*")


def _parse_deep(text: str) -> object:
    """_DECODER.decode with a stack of our own."""
    outer: list[tuple[list[object], str]] = []
    inner: list[object] = []  # the container being read; at first one that the whole text goes into
    closer = ""
    at = _skip_space(text, 0)
    while True:
        char = text[at : at + 1]
        if closer == "}" and len(inner) % 2 == 0 and char != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        if char and char in "[{":
            outer.append((inner, closer))
            inner, closer = [], "]" if char == "[" else "}"
            at = _skip_space(text, at + 1)
            if text[at : at + 1] != closer:
                continue
        else:
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
