"""Properties that hold for any payload and any text, tried by Hypothesis."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_proletarian.errors import PayloadDecodeError
from django_proletarian.transit import URI, Char, FrozenMap, Keyword, Symbol, TaggedValue, decode, encode
from django_proletarian.transit.text import _DECODER, _parse_deep, _write_deep, parse, write
from tests.rules.transit_exact import exact, meaning

TEXTS = [
    json.loads(line)["payload"]
    for line in (Path(__file__).parent.parent / "clojure" / "payloads.jsonl").read_text("utf-8").splitlines()
]
SHORT_TEXTS = [text for text in TEXTS if len(text) < 1000]

characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=8) | st.text("~^`#: /a😀", max_size=6)


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


# On both sides of the length from which on strings are cached, in every script.
short_keys = st.text(characters, max_size=5).filter(lambda text: 1 <= utf16_units(text) <= 5)

milliseconds = st.integers(-62135596800000, 253402300799999)
instants = milliseconds.map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
tags = st.text(characters, min_size=2, max_size=6).filter(
    lambda tag: tag not in {"set", "list", "cmap", "ratio", "time/date", "time/time", "time/duration"}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.fractions()
    | texts
    | texts.map(Keyword)
    | texts.map(Symbol)
    | texts.map(URI)
    | st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF).map(Char)
    | st.uuids()
    | st.binary(max_size=8)
    | instants
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.builds(TaggedValue, st.sampled_from("XYZé"), texts)
)
hashables = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(inner, max_size=3)
        | st.dictionaries(inner, inner, max_size=3).map(FrozenMap)
        | st.builds(TaggedValue, tags, inner)
    ),
    max_leaves=6,
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(short_keys | short_keys.map(Keyword), inner, max_size=6)
        | st.builds(TaggedValue, tags, inner)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(values)
def test_what_is_written_is_read_back_the_same_type_by_type(value: object) -> None:
    assert exact(decode(encode(value, keyword_keys=False))) == exact(value)


@settings(deadline=None)
@given(values)
def test_with_keyword_keys_the_value_read_back_is_equal(value: object) -> None:
    assert decode(encode(value)) == value


@settings(deadline=None)
@given(values)
def test_what_was_read_is_written_with_the_same_meaning(value: object) -> None:
    text = encode(value, keyword_keys=False)
    assert meaning(encode(decode(text), keyword_keys=False)) == meaning(text)


@settings(deadline=None)
@given(st.lists(short_keys, min_size=1, max_size=12), st.booleans())
def test_keys_of_one_to_five_utf16_units_keep_reader_and_writer_in_step(keys: list[str], keyword_keys: bool) -> None:
    rows = [{key: n, "abcd": -n} for n, key in enumerate(keys * 3)]
    text = encode(rows, keyword_keys=keyword_keys)

    assert decode(text) == rows
    # A reader that knows nothing of ours finds the same keys behind the codes.
    plain = [encode([row], keyword_keys=keyword_keys) for row in rows]
    assert meaning(text)[1] == [meaning(row)[1][0] for row in plain]


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(), st.integers(1930, 2500), short_keys, st.booleans())
def test_more_keys_than_the_cache_holds_keep_reader_and_writer_in_step(
    seed: int, count: int, prefix: str, keyword_keys: bool
) -> None:
    keys = [f"{prefix}{n}" for n in range(count)]
    rows = [{key: 1} for key in keys + Random(seed).choices(keys, k=3000)]

    text = encode(rows, keyword_keys=keyword_keys)
    assert decode(text) == rows
    assert meaning(encode(decode(text), keyword_keys=keyword_keys)) == meaning(text)


@settings(deadline=None)
@given(values)
def test_the_ways_for_deep_trees_agree_with_json(value: object) -> None:
    text = encode(value)
    tree = parse(text)
    assert _parse_deep(text) == tree
    assert _write_deep(tree) == write(tree, 0) == text


def read_or_refused(text: str) -> None:
    try:
        value = decode(text)
    except PayloadDecodeError as error:
        assert len(str(error)) < 500  # noqa: PT017 (it need not be raised)
        return
    # Whatever can be read can be written and read again.
    exact_value = exact(value)
    assert exact(decode(encode(value, keyword_keys=False))) == exact_value


@settings(deadline=None, max_examples=200)
@given(st.text())
@example("\ud800")
@example("[\ud800]")
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


pieces = st.sampled_from(
    [
        *('["^ ",', '["~#set",[', '["~#cmap",[', '["~#ratio",["~n1","~n', '["~#x",', '["~#\'",', '{"~:a":'),
        *('"~:aaaa"', '"^0"', '"^1"', '"~#set"', '"^ "', '"~i1"', '"~zNaN"', '"~m0"', '"~b"', '"~u', '"~#time/date"'),
        *('"', "[", "]", "]]", "{", "}", ",", ":", "1", "1.0", "null", "true", "~", "^", " ", "-", "e5"),
        *("\\u", "\\ud83d", "\\", '"2024-01-01"'),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(pieces, max_size=14).map("".join))
def test_any_text_of_transit_pieces_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(SHORT_TEXTS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=2) | pieces), min_size=1, max_size=4),
)
def test_any_change_to_a_payload_of_clojures_is_read_or_refused(text: str, changes: list[tuple[int, int, str]]) -> None:
    for place, removed, added in changes:
        at = place % (len(text) + 1)
        text = text[:at] + added + text[at + removed :]
    read_or_refused(text)


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
    | st.sampled_from(["^ ", "^0", "^1", "~#set", "~#list", "~#cmap", "~#ratio", "~#'", "~#x", "~:abcd", "~n1", "~i2"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(json_trees)
def test_any_json_is_read_or_refused(tree: object) -> None:
    read_or_refused(json.dumps(tree))


@settings(deadline=None, max_examples=300)
@given(json_trees, st.text('[]{},:"1 ', max_size=3), st.integers(0, 10**6))
def test_reading_deep_texts_refuses_what_json_refuses(tree: object, added: str, place: int) -> None:
    text = json.dumps(tree)
    place %= len(text) + 1
    text = text[:place] + added + text[place:]
    outcomes = []
    for read in (_DECODER.decode, _parse_deep):
        try:
            outcomes.append(repr(read(text)))
        except ValueError:
            outcomes.append("no JSON")
    assert outcomes[0] == outcomes[1]
