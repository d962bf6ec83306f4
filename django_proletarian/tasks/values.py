"""Arguments and return values as JSON has them, which is what Django lets tasks take and return."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence


def normalised(value: object, place: str) -> object:
    """`value` in JSON's types alone: dict, list, str, int, float, bool and None.

    As Django does it: any mapping is a dict, any sequence a list, bytes are UTF-8 text. Subclasses become what they
    derive from. `place` is what the value is called in errors. Raises TypeError or ValueError for what no JSON holds,
    and for what PostgreSQL can't store.
    """
    if value is None or type(value) is int:  # as most are, or texts
        return value
    if type(value) is str:
        return _text(value, place)
    plain: object
    match value:
        case bool():
            plain = value
        case str():
            plain = _text(str.__str__(value), place)
        case int():
            plain = int(value)
        case float():
            plain = _number(float(value), place)
        case bytes():
            plain = _text(_decoded(value, place), place)
        case Mapping():
            plain = {_key(key, place): normalised(item, f"{place}[{key!r}]") for key, item in value.items()}
        case Sequence():
            plain = [normalised(item, f"{place}[{number}]") for number, item in enumerate(value)]
        case _:
            raise TypeError(
                f"Unsupported type: {type(value)}, of {place}. Tasks take and return what JSON holds: texts, numbers, "
                "lists and dicts; of a model instance pass the primary key."
            )
    return plain


def size(value: object) -> int:
    """About how many characters a normalised value takes as JSON."""
    return len(json.dumps(value, ensure_ascii=False))


def _number(number: float, place: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{place} is {number!r}, which JSON has no number for. Pass None or a text instead.")
    return number


def _decoded(value: bytes, place: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Unsupported value: {place} is of {type(value)}, and no UTF-8 text. Encode it, such as with base64."
        ) from error


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"Unsupported type: {type(key)}, of the key {key!r} in {place}. In JSON the keys of a dict are texts, and "
            "would come back as such: use str keys."
        )
    return _text(str.__str__(key), f"a key in {place}")


def _text(text: str, place: str) -> str:
    if "\x00" in text:
        raise ValueError(f"{place} has a NUL character, which PostgreSQL can't store in a text. Take it out.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{place} has half of a surrogate pair at character {error.start}, which is no text. Decode it "
                "properly."
            ) from error
    return text
