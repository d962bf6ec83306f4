"""What Clojure wrote is read as what Clojure meant, and written back so that Clojure reads the same.

payloads.jsonl holds the original's own output; the expected values here were written by hand, from its `pr`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from django_proletarian.errors import PayloadDecodeError
from django_proletarian.transit import URI, Char, FrozenMap, Keyword, Symbol, TaggedValue, decode, encode
from tests.rules.transit_exact import exact, meaning

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "clojure" / "payloads.jsonl").read_text("utf-8").splitlines()
]
PAYLOADS = {line["name"]: line["payload"] for line in LINES}

K = Keyword

# Each is right in Clojure and can't be right in Python.
REFUSED = {
    "set-0-false-nil": "equal in Python",  # 0 == False
    "date-y10000": "outside Python's years",
    "instant-y10000": "outside Python's years",
}

EXPECTED: list[tuple[str, object]] = [
    # scalars at the top are quoted, ["~#'", x]
    ("nil-top", None),
    ("true-top", True),
    ("false-top", False),
    ("int-0", 0),
    ("int-1", 1),
    ("int-2-31", 2147483648),
    ("java-byte", 7),
    ("int-2-53-1", 9007199254740991),  # the last that is a JSON number
    ("int-2-53", 9007199254740992),  # the first that is "~i..."
    ("int-neg-2-53-1", -9007199254740991),
    ("int-neg-2-53", -9007199254740992),
    ("long-max", 9223372036854775807),
    ("bigint-0", 0),  # Python has one kind of integer
    ("bigint-small", 123),
    ("biginteger", 5),
    ("bigint-neg", -1234567890123456789012345678901234567890),
    ("dbl-0", 0.0),  # a double, not the integer 0
    ("dbl-1", 1.0),
    ("dbl-neg0", -0.0),
    ("dbl-1e7", 10000000.0),
    ("dbl-1e-4", 0.0001),
    ("dbl-2-53", 9007199254740992.0),
    ("dbl-2-60", 1152921504606846976.0),  # Java before 19 writes a digit too many
    ("dbl-2e23", 1.9999999999999998e23),
    ("dbl-max", 1.7976931348623157e308),
    ("dbl-min", 5e-324),  # Java writes the same double as 4.9E-324
    ("dbl-third", 0.3333333333333333),
    ("float-tenth", 0.1),
    ("nan", float("nan")),
    ("inf", float("inf")),
    ("bigdec-1e-7", Decimal("1E-7")),
    ("bigdec-neg", Decimal("-1.5")),
    ("bigdec-big", Decimal("123456789012345678901234567890.123")),
    ("ratio", Fraction(1, 3)),
    ("ratio-neg", Fraction(-22, 7)),
    ("ratio-big", Fraction(123456789012345678901234567891, 7)),
    ("str-empty", ""),
    ("str-tilde", "~"),  # written "~~"
    ("str-tilde-tilde", "~~"),
    ("str-tilde-x", "~hello"),
    ("str-caret-0", "^0"),  # not a cache code
    ("str-backtick", "`"),
    ("str-backtick-x", "`hello"),
    ("str-hash", "#foo"),
    ("str-astral", "😀𝄞"),  # written as \u surrogate pairs
    ("str-unicode", "Blåbærsyltetøy 日本語 é e\u0301"),
    ("str-ls-ps", "\u2028\u2029\ufeff\uffff"),
    ("str-del-c1", "\x7f\x80\x9f\xad"),
    ("str-html", "<a href='x'>&amp;</a>"),
    ("kw", K("foo")),
    ("kw-ns", K("foo/bar")),
    ("kw-multi-slash", K("a/b/c")),
    ("kw-digits", K("123")),
    ("kw-tilde", K("~x")),  # no escape after the prefix
    ("kw-unicode", K("æøå/日本")),
    ("sym", Symbol("foo")),
    ("sym-slash", Symbol("/")),
    ("char-a", Char("a")),
    ("char-nul", Char("\0")),
    ("char-newline", Char("\n")),
    ("char-space", Char(" ")),
    ("char-unicode", Char("å")),
    ("uuid", UUID("531a379e-31bb-4ce1-8690-158dceb64be6")),
    ("uuid-nil", UUID(int=0)),
    ("uri-rel", URI("a/b")),
    ("bytes-empty", b""),
    ("bytes-100", bytes(range(100))),
    ("date-epoch", datetime(1970, 1, 1, tzinfo=UTC)),
    ("date-neg", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("date-1900", datetime(1900, 1, 1, tzinfo=UTC)),
    ("instant", datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),
    ("instant-micros", datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),  # the original drops .000999
    ("instant-neg-sub-ms", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),  # towards the past
    ("tagged-1", TaggedValue("X", "abc")),
    ("tagged-value", TaggedValue("point", [1, 2])),
    # sequences
    ("vec-nested", [[1, [2, [3, []]]], []]),
    ("vec-tag-like", ["~#set", [1]]),  # strings that look like a tag are no tag
    ("vec-in-list", [[1], [2], {3}, {K("a"): 4}]),  # "^0" is the tag "~#list"
    ("list-empty", []),
    ("list-1", [1]),
    ("cache-list-top", [K("hello"), K("hello")]),
    ("seq-lazy", [2, 3, 4]),
    ("map-entry", [K("a"), 1]),
    ("bool-arr", [True, False]),
    ("char-arr", [Char("a"), Char("b")]),
    ("long-arr", [1, 9007199254740993]),
    ("obj-array", [1, "a", K("b")]),
    # sets
    ("set-kws", {K("bbb"), K("aaa"), K("ccc")}),
    ("set-str", {"a", "b", "~c"}),
    ("set-vec", {(1, 2)}),  # a member must be hashable
    # maps
    ("map-1", {K("a"): 1}),
    ("map-str", {"email": "a@b.c", "id": 42}),
    ("map-str-empty", {"": 1}),
    ("map-str-esc", {"~a": 1, "^b": 2, "`c": 3, "~abcd": 4, "^ ": 5, "^0": 6}),
    ("map-kw-ns", {K("user/email"): "a@b.c", K("user/id"): 42}),
    ("map-int-keys", {1: "one", 2: "two"}),
    ("map-int-keys-cached", [{1000: 1, 2000: 2}, {1000: 3, 2000: 4}]),
    ("map-long-key", {9007199254740993: 1}),
    ("map-bigint-key", {123: 1}),
    ("map-dbl-key", {1.5: 1}),
    ("map-dbl-key-1.0", {1.0: 1}),
    ("map-dbl-key-1e7", {1e7: 1}),
    ("map-nan-key", {float("nan"): 1}),
    ("map-bigdec-key", {Decimal("1.5"): 1}),
    ("map-bytes-key", {b"\x01": 1}),
    ("map-char-key", {Char("a"): 1}),
    ("map-sym-key", {Symbol("foo"): 1}),
    ("map-uri-key", {URI("http://x"): 1}),
    ("map-uuid-key", {UUID("531a379e-31bb-4ce1-8690-158dceb64be6"): 1}),
    ("map-date-key", {datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC): 1}),
    ("map-nil-key-2", {None: 1, K("abcd"): 2}),
    ("map-nil-val", {K("a"): None}),
    ("cmap-vec", {(1, 2): "a"}),
    ("cmap-vec-kw", {(K("a"), K("b")): "a", (K("c"), K("d")): "b"}),
    ("cmap-list", {(1, 2): 3}),
    ("cmap-nil-key", {None: 1, (1,): 2}),
    ("cmap-ratio", {Fraction(1, 2): 1}),
    ("cmap-nested", {(1,): {(2,): {(3,): 4}}}),
    ("cmap-in-map", {K("outer"): {(1, 2): {K("inner"): [3]}}}),  # values in a cmap stay lists
    ("cmap-str-keys", [{(1,): 2, "abcdef": 3}, {"abcdef": 4}]),  # in a cmap, strings are not cached
    ("cmap-twice", [{(1,): 2}, {(1,): 2}]),
    (
        "nested-map",
        {
            K("user"): {K("email"): "a@b.c", K("address"): {K("street"): "X", K("zip"): "0123"}},
            K("tags"): {K("new"), K("vip")},
            K("items"): [{K("sku"): "A1", K("qty"): 2}, {K("sku"): "B2", K("qty"): 1}],
        },
    ),
    (
        "nested-all",
        {
            K("nan"): float("nan"),
            K("inst"): datetime(1970, 1, 1, tzinfo=UTC),
            K("instant"): datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
            K("big"): 12,
            K("ch"): Char("c"),
            K("sym"): Symbol("a/b"),
            K("list"): [1, 2],
            K("ratio"): Fraction(1, 2),
            K("nil"): None,
            K("cmap"): {(1,): 2},
            K("bytes"): b"\x01\x02\x03",
            K("uri"): URI("http://x"),
            K("uuid"): UUID("531a379e-31bb-4ce1-8690-158dceb64be6"),
            K("set"): {1},
            K("dec"): Decimal("1.5"),
        },
    ),
    # the cache
    ("cache-kw-repeat", [K("hello")] * 3),
    ("cache-sym", [Symbol("foobar")] * 2),
    ("cache-str-key-short", [{"abc": 1}, {"abc": 2}]),  # three characters are not cached
    ("cache-str-key-esc", [{"~abc": 1}, {"~abc": 2}, "~abc"]),
    ("cache-str-val-same-as-key", [{"name": "name"}, "name", {"name": "name"}]),  # values are not cached
    ("cache-latin-key", [{"æøå": 1, "abcd": 2}, {"æøå": 3, "abcd": 4}]),  # three characters, though six bytes
    ("cache-astral-key", [{"😀😀": 1, "abcd": 2}, {"😀😀": 3, "abcd": 4}]),  # two characters, but four UTF-16 units
    ("cache-astral-kw", [K("😀"), K("abcd"), K("😀"), K("abcd")]),  # "~:" and two units
    ("cache-date-key", [{datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC): n} for n in (1, 2)]),
    ("cache-45-kws", [[K(f"key-{n}") for n in range(45)]] * 2),  # the 45th has a code of two digits
    ("cache-1935", [K(f"key-{n}") for n in range(1935)] * 2),
    ("cache-1936", [K(f"key-{n}") for n in range(1936)] * 2),  # the cache is full, and "^[[" its last code
]


@pytest.mark.parametrize(("name", "expected"), EXPECTED, ids=[name for name, _ in EXPECTED])
def test_a_payload_from_clojure_is_read_as_what_it_was(name: str, expected: object) -> None:
    assert exact(decode(PAYLOADS[name])) == exact(expected)


@pytest.mark.parametrize("name", sorted(PAYLOADS.keys() - REFUSED.keys()))
def test_a_payload_from_clojure_is_written_back_with_the_same_meaning(name: str) -> None:
    text = encode(decode(PAYLOADS[name]), keyword_keys=False)

    assert meaning(text) == meaning(PAYLOADS[name])
    assert exact(decode(text)) == exact(decode(PAYLOADS[name]))


# Written back in another way: lists as vectors, sets in any order, BigInts as integers, doubles spelt as Python does.
SPELT_OTHERWISE: tuple[str, ...] = (
    "list-",
    "seq-",
    "cache-list-",
    "vec-in-list",
    "cmap-list",
    "set-",
    "bigint-",
    "biginteger",
    "dbl-",
)
SPELT_OTHERWISE += ("map-bigint-key", "nested-", "cache-astral-", "str-astral")


@pytest.mark.parametrize("name", [name for name in PAYLOADS if not name.startswith(SPELT_OTHERWISE)])
def test_a_payload_from_clojure_is_written_back_letter_by_letter_where_json_gives_one_spelling(name: str) -> None:
    if name not in REFUSED:
        assert encode(decode(PAYLOADS[name]), keyword_keys=False) == PAYLOADS[name]


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_a_payload_from_clojure_that_python_cannot_hold_is_refused_and_says_why(name: str, reason: str) -> None:
    with pytest.raises(PayloadDecodeError, match=reason):
        decode(PAYLOADS[name])


def test_vectors_nested_200_deep_in_clojure_are_read() -> None:
    value, depth = decode(PAYLOADS["deep-200"]), 0
    while isinstance(value, list):
        (value,), depth = value, depth + 1
    assert (value, depth) == (K("leaf"), 201)


def test_a_map_of_100_keys_from_clojure_is_read_with_every_key() -> None:
    assert decode(PAYLOADS["map-100-hash"]) == {f"key{n}": n for n in range(100)}


def test_keys_of_three_non_ascii_letters_take_no_place_in_the_cache() -> None:
    """The compiled transit-python counts bytes, and reads the second map with the key of the first."""
    text = '[["^ ","æøå",1,"abcd",2],["^ ","æøå",3,"^0",4]]'

    assert decode(text) == [{"æøå": 1, "abcd": 2}, {"æøå": 3, "abcd": 4}]
    assert encode(decode(text), keyword_keys=False) == text


def test_a_map_as_a_key_is_a_frozen_map() -> None:
    read: Any = decode('["~#cmap",[["^ ","~:a",[1]],2]]')

    assert exact(read) == exact({FrozenMap({K("a"): (1,)}): 2})
    assert read[FrozenMap({"a": (1,)})] == 2
    assert encode(read) == '["~#cmap",[["^ ","~:a",[1]],2]]'


def test_the_cache_begins_anew_after_1936_strings() -> None:
    keys = [K(f"key-{n}") for n in range(1937)]
    text = encode([*keys, keys[-1], keys[0], keys[0]])

    assert text.endswith('"~:key-1936","^0","~:key-0","^1"]')
    assert decode(text) == [*keys, keys[-1], keys[0], keys[0]]
