"""From a Python value to the tree of the Transit-JSON text that means it.

Called by transit.encode.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from itertools import chain, islice
from typing import Any, NoReturn, cast

from django_proletarian.errors import PayloadEncodeError
from django_proletarian.transit.cache import CACHED_ANYWHERE, CODES, is_long
from django_proletarian.transit.scalars import (
    MAP,
    PREFIXES,
    READERS,
    STRUCTURE_TAGS,
    TAG_READERS,
    TAG_WRITERS,
    WRITERS,
    write_double,
    write_integer,
)
from django_proletarian.transit.text import MAX_DEPTH
from django_proletarian.transit.values import FrozenMap, Refused, TaggedValue

# A container of which some items are written and others not: itself, its items to come, the nodes written so far, and
# the parity of their number when a key is due: 1 in a map, 0 in a cmap, -1 elsewhere.
_Source = tuple[object, Iterator[Any], list[object], int]


class _ShortTagged:
    """The kind of a TaggedValue that has the string form, "~Xabc"."""


_AS_THEMSELVES = frozenset({type(None), bool, int, float, str, Fraction, *WRITERS, *TAG_WRITERS})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, FrozenMap, TaggedValue})
_KNOWN = _AS_THEMSELVES | _CONTAINERS
_EXACT = _KNOWN - {TaggedValue}
_STRING_KEYS = frozenset({type(None), bool, int, float, str, _ShortTagged, *WRITERS})  # keys that need no cmap
# Keys of these types, if they differ in Python, are also written differently. (Datetimes lose microseconds.)
_DISTINCT_KEYS = _STRING_KEYS - {float, datetime, memoryview}


def tree_of(value: object, keyword_keys: bool) -> tuple[object, int, bool]:  # noqa: PLR0912 (one loop over all kinds)
    """The tree for `value`, how deep it is at most, and whether keys or members that differ may be alike in it."""
    codes: dict[str, str] = {}
    outer: list[_Source] = []
    container: object = None
    items: Iterator[Any] = iter((value,))  # as if all of it were in one more list
    nodes: list[object] = []
    key_parity = -1
    depth = 0
    may_collide = False
    try:
        while True:
            for item in items:
                kind = type(item)
                if kind not in _EXACT:
                    kind, item = _known(item)  # noqa: PLW2901
                is_key = len(nodes) & 1 == key_parity
                if kind is str:
                    if not item.isascii():
                        _refuse_lone_surrogates(item)
                    if is_key and keyword_keys and item:
                        nodes.append(_code("~:" + item, codes))
                    elif is_key and key_parity == 1:
                        nodes.append(_code("~" + item if item[:1] in PREFIXES else item, codes))
                    else:
                        nodes.append("~" + item if item[:1] in PREFIXES else item)
                elif kind in _CONTAINERS:
                    if len(outer) == depth:
                        depth += 1
                        if depth > MAX_DEPTH:
                            _refuse_depth(item, outer)
                    begun = _begin(kind, item, nodes, codes)
                    outer.append((container, items, nodes, key_parity))
                    container = item
                    items, nodes, key_parity, collides = begun
                    may_collide = may_collide or collides
                    break
                elif kind is int and not is_key and -(2**53) < item < 2**53:
                    nodes.append(item)
                else:
                    nodes.append(_node(kind, item, is_key and key_parity == 1, codes))
            else:
                if not outer:
                    tree = nodes[0] if type(nodes[0]) is list else ["~#'", nodes[0]]
                    return tree, 2 * depth + 2, may_collide  # a set, for one, takes two lists; a ratio at the end, two
                container, items, nodes, key_parity = outer.pop()
    except ValueError as error:  # Refused, or int's own when sys.set_int_max_str_digits is low
        outer.append((container, items, nodes, key_parity))
        problem = f"{_path(outer)}: {error}"
    raise PayloadEncodeError(problem)


def _begin(
    kind: type, item: Any, nodes: list[object], codes: dict[str, str]
) -> tuple[Iterator[Any], list[object], int, bool]:
    """Append to `nodes` the node of the container `item`; return its items and what the loop needs for them."""
    inside: list[object] = []
    if kind is dict or kind is FrozenMap:
        items = chain.from_iterable(item.items())
        distinct = _DISTINCT_KEYS.issuperset(map(type, item))
        if distinct or all(map(_is_string_key, item)):
            inside.append(MAP)
            nodes.append(inside)
            return items, inside, 1, not distinct
        nodes.append([_code("~#cmap", codes), inside])
        return items, inside, 0, True
    if kind is list or kind is tuple:
        nodes.append(inside)
        return iter(item), inside, -1, False
    if kind is TaggedValue:
        _refuse_tag(item.tag)
        inside.append(_code(f"~#{item.tag}", codes))
        nodes.append(inside)
        return iter((item.value,)), inside, -1, False
    nodes.append([_code("~#set", codes), inside])
    return iter(item), inside, -1, not _DISTINCT_KEYS.issuperset(map(type, item))


def _node(kind: type, item: Any, is_cached_key: bool, codes: dict[str, str]) -> object:
    """What stands in the tree for `item`, which is neither a container nor a str."""
    if kind is int:
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
    elif kind is Fraction:
        return [_code("~#ratio", codes), [f"~n{write_integer(n)[2:]}" for n in item.as_integer_ratio()]]
    elif kind in TAG_WRITERS:
        tag, writer = TAG_WRITERS[kind]
        return [_code(f"~#{tag}", codes), writer(item)]
    elif kind is _ShortTagged:
        _refuse_tag(item.tag)
        text = f"~{item.tag}{item.value}"
    else:
        text = WRITERS[kind](item)
    if not text.isascii():
        _refuse_lone_surrogates(text)
    return _code(text, codes) if is_cached_key or text[1:2] in CACHED_ANYWHERE else text


def _code(text: str, codes: dict[str, str]) -> str:
    """`text`, or the cache code that stands for it because it was written before."""
    if len(text) < 4 and not is_long(text):
        return text
    code = codes.get(text)
    if code is not None:
        return code
    if len(codes) == len(CODES):
        codes.clear()
    codes[text] = CODES[len(codes)]
    return text


def _known(item: Any) -> tuple[type, Any]:
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
        if kind in _KNOWN and not hasattr(item, "getlist"):  # a QueryDict is a dict that hides values
            return kind, item
    raise Refused(_refusal(item))


def _is_string_key(key: object) -> bool:
    try:
        return _known(key)[0] in _STRING_KEYS
    except Refused:  # again when its turn comes, and then with its place
        return False


def _is_lazy(item: object) -> bool:
    """Whether `item` is a string that Django translates when it is used."""
    # Django can't be imported here, but whoever made such a string did.
    functional = sys.modules.get("django.utils.functional")
    return functional is not None and isinstance(item, getattr(functional, "Promise", ()))


def _refusal(item: object) -> str:
    name = f"a {type(item).__qualname__}"
    if hasattr(item, "_meta") and hasattr(item, "pk"):
        return (
            f"{name} is a model instance, which may have changed when the job runs; pass its primary key, instance.pk"
        )
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
    tag = item.tag
    return type(item.value) is str and isinstance(tag, str) and len(tag) == 1 and tag <= "\uffff" and tag not in "~^`#"


def _refuse_tag(tag: str) -> None:
    if not isinstance(tag, str) or not tag:
        raise Refused("a TaggedValue whose tag is not a str of at least one character")
    if tag in READERS or tag in TAG_READERS or tag in STRUCTURE_TAGS:
        raise Refused(f"a TaggedValue with the tag {tag!r}, which is Transit's own; pass the value that it stands for")
    _refuse_lone_surrogates(tag)


def _refuse_lone_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("a str with half a character, a lone surrogate, in it; was it decoded as it should be?") from None


def _refuse_depth(item: object, outer: list[_Source]) -> NoReturn:
    if any(container is item for container, *_ in outer):
        raise Refused("a container that contains itself")
    raise Refused(f"nested deeper than {MAX_DEPTH} levels")


def _path(containers: list[_Source]) -> str:
    """Where writing stopped, as one would write it in Python: payload["items"][3]["price"]. Of a deep place the end."""
    path = "payload" if len(containers) <= 21 else "payload..."
    for container, _, nodes, key_parity in containers[1:][-20:]:
        count = len(nodes) - (nodes is not containers[-1][2])  # an outer one already has the node of the next
        if isinstance(container, TaggedValue):
            path += ".value"
        elif isinstance(container, list | tuple):
            path += f"[{count}]"
        elif key_parity == -1:
            path += "{...}"  # a set has no order
        elif count & 1 == key_parity:
            path += f", key number {count // 2}"
        else:
            key = next(islice(cast("Iterable[object]", container), (count - key_parity) // 2, None))
            path += f"[{json.dumps(key) if isinstance(key, str) else ascii(key)}]"
    return path
