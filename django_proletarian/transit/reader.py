"""From the tree of a Transit-JSON text to the Python value that it means.

Called by transit.decode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from typing import Any, cast

from django_proletarian.errors import PayloadDecodeError
from django_proletarian.transit.cache import CACHED_ANYWHERE, CODES, is_long
from django_proletarian.transit.scalars import MAP, PREFIXES, READERS, STRUCTURE_TAGS, TAG_READERS
from django_proletarian.transit.text import MAX_DEPTH
from django_proletarian.transit.values import FrozenMap, Keyword, Refused, TaggedValue

_INDEX_OF_CODE = {code: index for index, code in enumerate(CODES)}

# A container of which some items are read and others not: its items to come, the values read so far, what makes one
# value of them, whether every other item is a key, whether those keys go into the cache, whether all within is hashed.
# (A plain tuple: making a named one takes as long as reading a string.)
_Finish = Callable[[list[object], bool], object]
_Open = tuple[Iterator[object], list[object], _Finish, bool, bool, bool]


def value_of(tree: object) -> object:  # noqa: PLR0912, PLR0915 (one loop, since calls cost more than all else)
    """Walk through `tree` in the order of its text, on which the cache depends."""
    cache: list[object] = []
    outer: list[_Open] = []
    items: Iterator[Any] = iter((tree,))  # as if all of it were in one more array
    values: list[object] = []
    finish: _Finish = _array
    pairs = cached = hashed = False
    try:
        while True:
            for item in items:
                kind = type(item)
                if kind is str:
                    start = item[:1]
                    if start == "~":
                        if item[1:2] == ":":  # here, since most are keywords
                            value: object = Keyword(item[2:])
                            if len(item) > 3 or is_long(item):
                                _remember(value, cache)
                        else:
                            value = _scalar(item, cached and not len(values) & 1, cache)
                            if type(value) is _Tag:
                                raise _misplaced(value)
                        values.append(value)
                    elif start == "^":
                        value = _recall(item, cache)
                        if type(value) is _Tag:
                            raise _misplaced(value)
                        values.append(value)
                    else:
                        if cached and not len(values) & 1 and is_long(item):
                            _remember(item, cache)
                        values.append(item)
                elif kind is list or kind is tuple:
                    if len(outer) == MAX_DEPTH:
                        raise Refused(f"nested deeper than {MAX_DEPTH} levels")
                    opened = _open(item, cache, hashed or (pairs and not len(values) & 1))
                    outer.append((items, values, finish, pairs, cached, hashed))
                    items, values, finish, pairs, cached, hashed = opened
                    break
                else:
                    values.append(item)
            else:
                if not outer:
                    return values[0]
                done, must_hash, make = values, hashed, finish
                items, values, finish, pairs, cached, hashed = outer.pop()
                try:
                    value = make(done, must_hash)
                except RecursionError:  # pragma: no cover # until Python 3.11
                    # From comparing two of them, which it does if their hashes are the same.
                    raise Refused("a map or set with keys or members that are equal, but very deep") from None
                values.append(value)
    except Refused as refused:
        problem = str(refused)
    outer.append((items, values, finish, pairs, cached, hashed))
    raise PayloadDecodeError(f"The payload is not Transit that Python can hold: {problem}, at {_place(outer)}.")


class _Tag(str):
    """What "~#tag" reads as; it opens a tagged value and may stand nowhere else."""

    __slots__ = ()


def _misplaced(tag: _Tag) -> Refused:
    return Refused(f"the tag {tag[:20]!r} in the place of a value")


def _open(node: Any, cache: list[object], hashed: bool) -> _Open:
    """Begin to read an array or object."""
    if type(node) is list:
        first = node[0] if node else None
        if first == MAP:
            return islice(node, 1, None), [], _map, True, True, hashed
        tag = _tag(first, cache)
        if tag is None:
            return iter(node), [], _array, False, False, hashed
        if len(node) != 2:
            raise Refused(f"the tag {tag[:20]!r} with {len(node) - 1} values instead of one")
        return _open_tagged(tag, node[1], hashed)
    if len(node) == 1:
        key, item = node[0]
        tag = _tag(key, cache)
        if tag is not None:
            return _open_tagged(tag, item, hashed)
    return chain.from_iterable(node), [], _map, True, True, hashed


def _tag(first: object, cache: list[object]) -> _Tag | None:
    """The tag that `first`, the first item of an array or object, is or stands for; if none, it is not read yet."""
    if type(first) is not str or not first.startswith(("~#", "^")):
        return None
    value = _recall(first, cache) if first[0] == "^" else _scalar(first, False, cache)
    return value if type(value) is _Tag else None


def _open_tagged(tag: _Tag, item: Any, hashed: bool) -> _Open:
    if tag not in STRUCTURE_TAGS:
        return iter((item,)), [], partial(_tagged, tag), False, False, hashed
    if type(item) is not list:
        raise Refused(f"the tag {tag!r} before something other than an array")
    match tag:
        case "set":
            return iter(item), [], _frozenset if hashed else _set, False, False, True  # what is in it must be hashable
        case "cmap":
            return iter(item), [], _map, True, False, hashed
        case "ratio":
            return iter(item), [], _ratio, False, False, hashed
        case _:
            return iter(item), [], _array, False, False, hashed


def _scalar(text: str, is_cached_key: bool, cache: list[object]) -> object:
    """What a string that begins with "~", and is no keyword, means."""
    code = text[1:2]
    value: object
    if code == "#":
        value = _Tag(text[2:])
    elif code in READERS:
        value = _read(READERS[code], text[2:], f"~{code}")
    elif code in PREFIXES:
        value = text[1:]
    else:
        value = TaggedValue(code, text[2:]) if code else text
    if (is_cached_key or code in CACHED_ANYWHERE) and (len(text) > 3 or is_long(text)):
        _remember(value, cache)
    return value


def _recall(code: str, cache: list[object]) -> object:
    try:
        return cache[_INDEX_OF_CODE[code]]
    except LookupError:
        raise Refused(f"the cache code {code[:3]!r}, which stands for nothing here") from None


def _remember(value: object, cache: list[object]) -> None:
    if len(cache) == len(CODES):
        cache.clear()
    cache.append(value)


def _read(reader: Callable[[str], object], text: str, name: str) -> object:
    try:
        return reader(text)
    except Refused:
        raise
    except (ValueError, ArithmeticError, LookupError):  # whose own messages may quote the text
        raise Refused(f"unreadable text after {name!r}") from None


def _array(values: list[object], hashed: bool) -> object:
    return tuple(values) if hashed else values


def _map(values: list[object], hashed: bool) -> object:
    if len(values) > 400:
        _refuse_flood(values[::2])
    one_by_one = iter(values)
    made = dict(zip(one_by_one, one_by_one))  # noqa: B905 (an odd one out is noticed below)
    if 2 * len(made) != len(values):
        raise Refused(
            "a map with a key but no value" if len(values) & 1 else "a map with keys that are equal in Python"
        )
    return FrozenMap(made) if hashed else made


def _set(values: list[object], hashed: bool) -> object:
    if len(values) > 200:
        _refuse_flood(values)
    made = set(values)
    if len(made) != len(values):
        raise Refused("a set with members that are equal in Python")
    return made


def _frozenset(values: list[object], hashed: bool) -> object:
    return frozenset(cast("set[object]", _set(values, hashed)))


def _refuse_flood(keys: list[object]) -> None:
    """Numbers can be chosen to have all the same hash, so that a dict or set of them takes quadratic time to make."""
    if max(Counter(map(hash, keys)).values()) > 100:
        raise Refused("many keys or members that are equal in Python, or chosen to hash alike")


def _ratio(values: list[object], hashed: bool) -> object:
    if [type(value) for value in values] != [int, int] or values[1] == 0:
        raise Refused("a ratio of something other than two integers, the second not 0")
    return Fraction(*cast("list[int]", values))


def _tagged(tag: _Tag, values: list[object], hashed: bool) -> object:
    value = values[0]
    if tag == "'":  # around a scalar at the top, which a text can't be alone
        return value
    reader = TAG_READERS.get(tag) or READERS.get(tag)
    if reader is None:
        if not tag:
            raise Refused("an empty tag")
        return TaggedValue(str(tag), value)
    if type(value) is not str:
        raise Refused(f"the tag {tag!r} before something other than a string")
    return _read(reader, value, tag)


def _place(containers: list[_Open]) -> str:
    """Where reading stopped, counted from 0; keys are content and not shown. Of a deep place only the end."""
    steps = []
    for _, values, _, pairs, _, _ in containers[1:][-20:]:
        count = len(values)
        steps.append(f".{'value' if count & 1 else 'key'}[{count // 2}]" if pairs else f"[{count}]")
    return ("payload" if len(containers) <= 21 else "payload...") + "".join(steps)
