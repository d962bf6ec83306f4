"""Compare payloads with their types, and Transit texts by what they mean; used by the test_transit_* modules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django_proletarian.transit import TaggedValue


def exact(value: object) -> object:  # noqa: PLR0911
    """`value` with the type of everything in it: 1, 1.0 and True differ, Keyword("a") and "a", [] and ()."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return kind, sorted(((exact(k), exact(v)) for k, v in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return kind, sorted(map(exact, value), key=repr)
    if isinstance(value, list | tuple):
        return kind, [exact(item) for item in value]
    if isinstance(value, TaggedValue):
        return kind, value.tag, exact(value.value)
    if isinstance(value, float | Decimal):
        return kind, str(value)
    if isinstance(value, datetime):
        return kind, value.isoformat()
    return kind, value


def meaning(text: str) -> Any:
    """What a Transit-JSON text says, read with none of our own code: cache codes replaced, order of maps and sets gone.

    Differences that Clojure's own = doesn't see are not seen here: a list equals a vector, 5N equals 5.
    """
    cache: list[str] = []

    def string(text: str, is_key: bool) -> str:
        if text.startswith("^") and text != "^ ":
            digits = [ord(char) - 48 for char in text[1:]]
            return cache[digits[0] if len(digits) == 1 else digits[0] * 44 + digits[1]]
        if len(text.encode("utf-16-le")) >= 8 and (is_key or text[:2] in ("~:", "~$", "~#")):
            if len(cache) == 44 * 44:
                cache.clear()
            cache.append(text)
        return text

    def node(item: object, is_key: bool = False) -> Any:  # noqa: PLR0911
        if isinstance(item, str):
            item = string(item, is_key)
            if item[:2] in ("~i", "~n"):
                return "integer", int(item[2:])
            return ("double", float(item[2:])) if item[:2] == "~d" else ("string", item)
        if isinstance(item, list):
            if not item:
                return "array", []
            first = node(item[0])
            if first == ("string", "^ "):
                parts = [node(part, n % 2 == 0) for n, part in enumerate(item[1:])]
                return "map", sorted(zip(parts[::2], parts[1::2], strict=True), key=repr)
            if isinstance(first, tuple) and str(first[1]).startswith("~#"):
                content = node(item[1])
                if first[1] == "~#list":
                    return content
                if first[1] == "~#set":
                    return "set", sorted(content[1], key=repr)
                if first[1] == "~#cmap":
                    return "cmap", sorted(zip(content[1][::2], content[1][1::2], strict=True), key=repr)
                return first[1], content
            return "array", [first, *map(node, item[1:])]
        return type(item).__name__.replace("int", "integer").replace("float", "double"), item

    return node(json.loads(text))
