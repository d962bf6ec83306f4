"""Transit-JSON, the form in which Proletarian stores payloads: encode() and decode().

Called by serializers.py. transit_json.py turns text into a tree, this module the tree into Python values, and back.
Source: the public Transit format 0.8, github.com/cognitect/transit-format; tests/clojure/payloads.jsonl holds what
Clojure's transit-clj makes of it.

Nesting is followed with a stack of our own, never by recursion: a payload may be deep, and so may its reader be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import chain, islice

from typing import Any

from django_proletarian.errors import PayloadDecodeError, PayloadEncodeError
from django_proletarian.transit_json import MAX_DEPTH, parse, write
from django_proletarian.transit_scalars import (
    READERS,
    TAG_READERS,
    TAG_WRITERS,
    WRITERS,
    write_double,
    write_integer,
)
from django_proletarian.transit_types import URI, Char, FrozenMap, Keyword, Refused, Symbol, TaggedValue

__all__ = ["URI", "Char", "FrozenMap", "Keyword", "Symbol", "TaggedValue", "decode", "encode"]

# The rolling cache: long strings that are likely to recur are written once, later as "^" and one or two digits of
# base 44, which start at chr(48). When all codes are taken, writer and reader both forget everything and begin anew.
_DIGITS = [chr(48 + n) for n in range(44)]
_CODES = [f"^{low}" for low in _DIGITS] + [f"^{high}{low}" for high in _DIGITS[1:] for low in _DIGITS]
_INDEX = {code: index for index, code in enumerate(_CODES)}
_ALWAYS_CACHED = frozenset(":$#")  # keywords, symbols, tags; other strings only where they are map keys

_MAP = "^ "
_PREFIXES = frozenset("~^`")  # a string that starts with one of these is written with a "~" before it
_STRUCTURE_TAGS = frozenset({"set", "list", "cmap", "ratio"})


def _is_long(text: str) -> bool:
    """Whether `text` is worth a cache code: more than three UTF-16 units, as Java counts."""
    return len(text) > 3 or (len(text) > 1 and not text.isascii() and len(text.encode("utf-16-le")) > 6)


# Reading


def decode(text: str) -> object:
    """Return the value that the Transit-JSON `text` holds, in the compact or the verbose form.

    Maps are dicts, vectors and lists are lists, sets are sets; where Python wants something hashable (in map keys and
    set members) they are FrozenMap, tuple and frozenset.

    Whatever `text` is, nothing but PayloadDecodeError is raised. Its message has the place, and of the payload no more
    than a tag or a cache code.
    """
    try:
        tree = parse(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at character {error.pos}"
    except Refused as refused:
        problem = str(refused)
    else:
        return _value(tree)
    # Out here, because as its context the JSONDecodeError would carry the whole text along.
    raise PayloadDecodeError(f"The payload is not Transit-JSON: {problem}.")


class _Tag(str):
    """What "~#tag" reads as; it opens a tagged value and may stand nowhere else."""

    __slots__ = ()


# A container of which some items are read and others not: its items to come, the values read so far, what makes one
# value of them, whether every other item is a key, whether those keys go into the cache, whether all within is hashed.
# (A plain tuple: making a named one takes as long as reading a string.)
_Finish = Callable[[list[object], bool], object]
_Open = tuple[Iterator[object], list[object], _Finish, bool, bool, bool]


def _value(tree: object) -> object:
    """Walk through `tree` in the order of its text, on which the cache depends."""
    cache: list[object] = []
    outer: list[_Open] = []
    items, values, finish, pairs, cached, hashed = _open([tree], cache, False)
    try:
        while True:
            for item in items:
                kind = type(item)
                if kind is str:
                    start = item[:1]
                    is_key = cached and not len(values) & 1
                    if start == "^" or start == "~":
                        value = _scalar(item, is_key, cache)
                        if type(value) is _Tag:
                            raise Refused(f"the tag {value[:20]!r} in the place of a value")
                        values.append(value)
                    else:
                        if is_key and _is_long(item):
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
                made, must_hash, make = values, hashed, finish
                items, values, finish, pairs, cached, hashed = outer.pop()
                values.append(make(made, must_hash))
    except Refused as refused:
        outer.append((items, values, finish, pairs, cached, hashed))
        problem = f"{refused}, at {_place(outer)}"
    raise PayloadDecodeError(f"The payload is not Transit that Python can hold: {problem}.")


def _open(node: Any, cache: list[object], hashed: bool) -> _Open:
    """Begin to read an array or object."""
    if type(node) is list:
        first = node[0] if node else None
        if first == _MAP:
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
    """The tag that `first`, the first item of an array or object, is or stands for; None, and not read, if it's none."""
    if type(first) is not str or not first.startswith(("~#", "^")):
        return None
    value = _scalar(first, False, cache)
    return value if type(value) is _Tag else None


def _open_tagged(tag: str, item: Any, hashed: bool) -> _Open:
    if tag not in _STRUCTURE_TAGS:
        return iter((item,)), [], partial(_tagged, tag), False, False, hashed
    if type(item) is not list:
        raise Refused(f"the tag {tag!r} before something other than an array")
    match tag:
        case "set":
            return iter(item), [], _set, False, False, True
        case "cmap":
            return iter(item), [], _map, True, False, hashed
        case "ratio":
            return iter(item), [], _ratio, False, False, hashed
        case _:
            return iter(item), [], _array, False, False, hashed


def _scalar(text: str, is_cached_key: bool, cache: list[object]) -> object:
    """What a string that begins with "~" or "^" stands for."""
    if text[0] == "^":
        try:
            return cache[_INDEX[text]]
        except LookupError:
            raise Refused(f"the cache code {text[:3]!r}, which stands for nothing here") from None
    code = text[1:2]
    value: object
    if code == ":":
        value = Keyword(text[2:])
    elif code == "#":
        value = _Tag(text[2:])
    elif code in READERS:
        value = _read(READERS[code], text[2:], f"~{code}")
    elif code in _PREFIXES:
        value = text[1:]
    else:
        value = TaggedValue(code, text[2:]) if code else text
    if (is_cached_key or code in _ALWAYS_CACHED) and (len(text) > 3 or _is_long(text)):
        _remember(value, cache)
    return value


def _remember(value: object, cache: list[object]) -> None:
    if len(cache) == len(_CODES):
        cache.clear()
    cache.append(value)


def _read(reader: Callable[[str], object], text: str, name: str) -> object:
    try:
        return reader(text)
    except Refused:
        raise
    except (ValueError, ArithmeticError, LookupError):  # whose own messages may quote the text
        raise Refused(f"{name!r} with something after it that it can't have") from None


def _array(values: list[object], hashed: bool) -> object:
    return tuple(values) if hashed else values


def _map(values: list[object], hashed: bool) -> object:
    keys = values[::2]
    if len(values) & 1:
        raise Refused("a map with a key that has no value")
    if len(keys) > 1000:
        _refuse_flood(keys)
    made = dict(zip(keys, values[1::2], strict=True))
    if len(made) != len(keys):
        raise Refused("a map with keys that are equal in Python")
    return FrozenMap(made) if hashed else made


def _set(values: list[object], hashed: bool) -> object:
    if len(values) > 1000:
        _refuse_flood(values)
    made = frozenset(values) if hashed else set(values)
    if len(made) != len(values):
        raise Refused("a set with members that are equal in Python")
    return made


def _refuse_flood(keys: list[object]) -> None:
    """Numbers can be chosen to have all the same hash, so that making a set of them takes quadratic time."""
    if len(set(map(hash, keys))) < len(keys) // 2:
        raise Refused("many keys or members that are equal in Python, or chosen to hash alike")


def _ratio(values: list[object], hashed: bool) -> object:
    match values:
        case [int(numerator), int(denominator)] if denominator:
            return Fraction(numerator, denominator)
    raise Refused("a ratio of something other than two integers")


def _tagged(tag: str, values: list[object], hashed: bool) -> object:
    value = values[0]
    if tag == "'":  # around a scalar at the top, which a text can't be alone
        return value
    reader = TAG_READERS.get(tag) or READERS.get(tag)
    if reader is None:
        if not tag:
            raise Refused("an empty tag")
        return TaggedValue(tag, value)
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


# Writing


def encode(value: object, *, keyword_keys: bool = True) -> str:
    """Return `value` as Transit-JSON in the compact form.

    `keyword_keys` writes the str keys of dicts as keywords, whatever their text, so that Clojure's `{:keys [email]}`
    finds them; only the empty string stays a string. So a map that came from Clojure with string keys goes back
    with keywords, unless `keyword_keys` is False. Keyword keys are keywords either way.

    Datetimes keep milliseconds, the rest is cut off. Subclasses of str, int, float, dict, list, tuple are written as
    those.

    Raises PayloadEncodeError, with the place in the payload and what to pass instead, if there is something that
    Transit, Clojure or decode() could not hold.
    """
    writer = _Writer(keyword_keys)
    text = write(writer.tree(value))
    if writer.may_collide:
        try:
            decode(text)
        except PayloadDecodeError as error:
            raise PayloadEncodeError(f"The payload would be written so that it can't be read again. {error}") from None
    return text


# A container of which some items are written and others not: itself, its items to come, the nodes written so far, and
# the parity of their number when a key is due: 1 in a map, 0 in a cmap, -1 elsewhere.
_Source = tuple[object, Iterator[Any], list[object], int]


_AS_THEMSELVES = frozenset({type(None), bool, int, float, str, Fraction, *WRITERS, *TAG_WRITERS})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, FrozenMap, TaggedValue})
_KNOWN = _AS_THEMSELVES | _CONTAINERS
_EXACT = _KNOWN - {TaggedValue}
_STRING_KEYS = frozenset({type(None), bool, int, float, str, *WRITERS})  # keys that need no cmap
# Keys of these types, if they differ in Python, are also written differently. (Datetimes lose microseconds.)
_DISTINCT = frozenset({type(None), bool, int, str, *WRITERS} - {datetime, memoryview})


class _Writer:
    def __init__(self, keyword_keys: bool) -> None:
        self.keyword_keys = keyword_keys
        self.codes: dict[str, str] = {}
        self.may_collide = False

    def tree(self, value: object) -> object:
        outer: list[_Source] = []
        container: object = None
        items: Iterator[Any] = iter((value,))
        nodes: list[object] = []
        key_parity = -1
        try:
            while True:
                for item in items:
                    kind = type(item)
                    if kind not in _EXACT:
                        kind, item = _known(item)
                    is_key = len(nodes) & 1 == key_parity
                    if kind is str and not is_key and item.isascii():
                        nodes.append(f"~{item}" if item[:1] in _PREFIXES else item)
                    elif kind in _CONTAINERS:
                        if len(outer) == MAX_DEPTH:
                            _refuse_depth(item, outer)
                        opened = self.open(kind, item, nodes)
                        outer.append((container, items, nodes, key_parity))
                        container, items, nodes, key_parity = opened
                        break
                    else:
                        nodes.append(self.node(kind, item, is_key, is_key and key_parity == 1))
                else:
                    if not outer:
                        return nodes[0] if type(nodes[0]) is list else ["~#'", nodes[0]]
                    container, items, nodes, key_parity = outer.pop()
        except ValueError as error:  # Refused, or int's own when sys.set_int_max_str_digits is low
            outer.append((container, items, nodes, key_parity))
            problem = f"{_path(outer)}: {error}"
        raise PayloadEncodeError(problem)

    def open(self, kind: type, item: Any, nodes: list[object]) -> _Source:
        """Append the node of the container `item` to `nodes` and return what is to fill it."""
        inside: list[object] = []
        key_parity = -1
        items: Iterable[object] = item
        if kind is list or kind is tuple:
            nodes.append(inside)
        elif kind is dict or kind is FrozenMap:
            items = chain.from_iterable(item.items())
            kinds = set(map(type, item))
            self.may_collide |= not kinds <= _DISTINCT
            if kinds <= _STRING_KEYS or all(_known(key)[0] in _STRING_KEYS for key in item):
                key_parity = 1
                inside.append(_MAP)
                nodes.append(inside)
            else:
                key_parity = 0
                nodes.append([self.cached("~#cmap"), inside])
        elif kind is TaggedValue:
            _refuse_tag(item.tag)
            inside.append(self.cached(f"~#{item.tag}"))
            nodes.append(inside)
            items = (item.value,)
        else:
            self.may_collide |= not set(map(type, item)) <= _DISTINCT
            nodes.append([self.cached("~#set"), inside])
        return item, iter(items), inside, key_parity

    def node(self, kind: type, item: Any, is_key: bool, is_cached_key: bool) -> object:
        """What stands in the tree for `item`, which is no container."""
        if kind is str:
            if is_key and item and self.keyword_keys:
                text = f"~:{item}"
            else:
                text = f"~{item}" if item[:1] in _PREFIXES else item
        elif kind is int:
            if -(2**53) < item < 2**53 and not is_cached_key:
                return item
            text = write_integer(item)
        elif kind is float:
            if item - item == 0 and not is_cached_key:
                return item
            text = write_double(item)
        elif item is None or kind is bool:
            if not is_cached_key:
                return item
            text = "~_" if item is None else "~?t" if item else "~?f"
        elif kind is _ShortTagged:
            text = f"~{item.tag}{item.value}"
        elif kind is Fraction:
            return [self.cached("~#ratio"), [f"~n{write_integer(n)[2:]}" for n in item.as_integer_ratio()]]
        elif kind in TAG_WRITERS:
            tag, writer = TAG_WRITERS[kind]
            return [self.cached(f"~#{tag}"), writer(item)]
        else:
            text = WRITERS[kind](item)
        if not text.isascii():
            _refuse_lone_surrogates(text)
        if is_cached_key or (text[:1] == "~" and text[1:2] in _ALWAYS_CACHED):
            return self.cached(text)
        return text

    def cached(self, text: str) -> str:
        if len(text) < 4 and not _is_long(text):
            return text
        code = self.codes.get(text)
        if code is not None:
            return code
        if len(self.codes) == len(_CODES):
            self.codes.clear()
        self.codes[text] = _CODES[len(self.codes)]
        return text


class _ShortTagged(TaggedValue):
    """The kind of a TaggedValue that has the string form, "~Xabc"."""

    __slots__ = ()


def _known(item: object) -> tuple[type, Any]:
    """The type that `item` is written as, and `item` as one of that type."""
    while isinstance(item, Enum):
        item = item.value
    if _is_lazy(item):
        item = str(item)
    for kind in type(item).__mro__:
        if kind is TaggedValue:
            return (_ShortTagged if _is_short(item) else TaggedValue), item
        if kind is str:
            return str, str.__str__(item)
        if kind is int or kind is float:
            return kind, kind.__pos__(item)
        if kind in _KNOWN and not hasattr(item, "getlist"):
            return kind, item
    raise Refused(_refusal(item))


def _is_lazy(item: object) -> bool:
    """Whether `item` is a string that Django translates when it is used."""
    # Django can't be imported here, but whoever made such a string did.
    functional = sys.modules.get("django.utils.functional")
    return functional is not None and isinstance(item, functional.Promise)


def _refusal(item: object) -> str:
    name = f"a {type(item).__qualname__}"
    if hasattr(item, "_meta") and hasattr(item, "pk"):
        return f"{name} is a model instance, which may have changed when the job runs; pass its primary key, instance.pk"
    if is_dataclass(item) and not isinstance(item, type):
        return f"{name} is a dataclass, which Transit can't hold; pass dataclasses.asdict(instance)"
    if hasattr(item, "getlist"):
        return f"{name} may have several values for a key; pass dict(querydict.lists()) or querydict.dict()"
    if hasattr(item, "values_list"):
        return f"{name} is a queryset or manager; pass a list of keys, list(queryset.values_list('pk', flat=True))"
    if isinstance(item, Iterable):
        return f"{name} can't be written as Transit; pass list(...) or dict(...) of it"
    return f"{name} can't be written as Transit; pass a str, number, date, list, dict or other value that can"


def _is_short(item: TaggedValue) -> bool:
    return type(item.value) is str and len(item.tag) == 1 and item.tag <= "\uffff" and item.tag not in "~^`#"


def _refuse_tag(tag: str) -> None:
    if not tag or tag in READERS or tag in TAG_READERS or tag in _STRUCTURE_TAGS:
        raise Refused(f"a TaggedValue with the tag {tag!r}, which is Transit's own; pass the value that it stands for")
    _refuse_lone_surrogates(tag)


def _refuse_lone_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("a str with half a character, a lone surrogate, in it; was it decoded as it should be?") from None


def _refuse_depth(item: object, outer: list[_Source]) -> None:
    if any(source.container is item for source in outer):
        raise Refused("a container that contains itself")
    raise Refused(f"nested deeper than {MAX_DEPTH} levels")


def _path(containers: list[_Source]) -> str:
    """Where writing stopped, as one would write it in Python: payload["items"][3]["price"]."""
    path = "payload"
    for container, _, nodes, key_parity in containers[1:]:
        count = len(nodes)
        if isinstance(container, TaggedValue):
            path += ".value"
        elif isinstance(container, list | tuple):
            path += f"[{count}]"
        elif key_parity == -1:
            path += "{...}"  # a set has no order
        elif count & 1 == key_parity:
            path += f", key number {count // 2}"
        else:
            key = next(islice(container, (count - key_parity) // 2, None))
            path += f"[{json.dumps(key) if isinstance(key, str) else ascii(key)}]"
    return path if len(path) < 500 else f"payload...{path[-400:]}"
