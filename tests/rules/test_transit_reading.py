"""Transit texts that the original did not write for us, but someone may: the verbose form, our own tags, other tags."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime, time, timedelta

import pytest

from django_proletarian.errors import PayloadDecodeError
from django_proletarian.transit import URI, Char, FrozenMap, Keyword, Symbol, TaggedValue, decode, encode
from tests.rules.transit_exact import exact

K = Keyword


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"~:email":"a@b.c","~:id":42}', {K("email"): "a@b.c", K("id"): 42}),
        ("{}", {}),
        ('{"~#set":[1,2]}', {1, 2}),
        ('{"~#\'":"~:a"}', K("a")),
        ('{"~#cmap":[[1],2]}', {(1,): 2}),
        ('{"~#point":{"~:x":1}}', TaggedValue("point", {K("x"): 1})),
        ('{"~i1":{"~d1.5":null}}', {1: {1.5: None}}),
        ('[{"~:aaaa":1},{"^0":2}]', [{K("aaaa"): 1}, {K("aaaa"): 2}]),  # verbose texts have no codes, but might
        ('["~t1985-04-12T23:20:50.52Z"]', [datetime(1985, 4, 12, 23, 20, 50, 520000, tzinfo=UTC)]),
        ('["~t1985-04-13T01:20:50+02:00"]', [datetime(1985, 4, 12, 23, 20, 50, tzinfo=UTC)]),
        ('["~t1985-04-12T23:20:50.123456789Z"]', "smaller than a microsecond"),
        ('["~t10000-01-01T00:00:00Z"]', "years 1 to 9999"),
        ('["~t0001-01-01T00:00:00+02:00"]', "years 1 to 9999"),
        ('["~t2023-02-30T00:00:00Z"]', "'~t'"),
    ],
)
def test_the_verbose_form_is_read_too(text: str, expected: object) -> None:
    if isinstance(expected, str) and not isinstance(expected, Keyword):
        with pytest.raises(PayloadDecodeError, match=expected):
            decode(text)
    else:
        assert exact(decode(text)) == exact(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", 42),  # a text should be an array or a map at the top, but there's no doubt what this means
        ('"~:a"', K("a")),
        (" [ 1 ,\n\t2 ] \r\n", [1, 2]),
        ('["~#\'",["~#\'",1]]', 1),
        ('[["~#\'","a"]]', ["a"]),
        ('["~#u","531a379e-31bb-4ce1-8690-158dceb64be6"]', decode('["~u531a379e-31bb-4ce1-8690-158dceb64be6"]')[0]),  # type: ignore[index]
        ('["~"]', ["~"]),
        ('["`a"]', ["`a"]),
        ('["^ ",1,2]', {1: 2}),
        ('["^ ",[1],[2]]', {(1,): [2]}),
        ("[12345678901234567890]", [12345678901234567890]),
        ("[-0.0,1e5,1E+5]", [-0.0, 100000.0, 100000.0]),
        (
            '["~c\\u0000","~zNaN","~z-INF","~?t","~?f","~_"]',
            [Char("\0"), float("nan"), float("-inf"), True, False, None],
        ),
        ('["~:~:","~:","~$","~:^ "]', [K("~:"), K(""), Symbol(""), K("^ ")]),
        ('["^ ","~Xabc",1,"^0",2]', "equal in Python"),  # a key that was cached, and comes a second time
        ('[["^ ","~Xabc",1],["^ ","^0",2]]', [{TaggedValue("X", "abc"): 1}, {TaggedValue("X", "abc"): 2}]),
        ('["~#X","abc"]', TaggedValue("X", "abc")),
        ('["~#point",["~#set",[1]]]', TaggedValue("point", {1})),
        ('["~#link",["^ ","~:href","~rhttp://x"]]', TaggedValue("link", {K("href"): URI("http://x")})),
        ('["~#set",[["~#set",[["~#list",[1]]]]]]', {frozenset({(1,)})}),
        ('["~#set",[["^ ","~:a",["~#set",[[1]]]]]]', {FrozenMap({K("a"): frozenset({(1,)})})}),
        ('["~#set",[["~#point",[1]]]]', {TaggedValue("point", (1,))}),
        ('[["~#point",1],["^0",2]]', [TaggedValue("point", 1), TaggedValue("point", 2)]),
    ],
)
def test_unusual_texts_that_mean_something_are_read(text: str, expected: object) -> None:
    if expected == "equal in Python":
        with pytest.raises(PayloadDecodeError, match=expected):
            decode(text)
    else:
        assert exact(decode(text)) == exact(expected)


@pytest.mark.parametrize(
    ("tag", "text", "expected"),
    [
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("date", "0001-01-01", date.min),
        ("date", "2023-02-29", None),
        ("date", "+10000-01-01", None),  # as java.time.LocalDate has it
        ("date", "20240229", None),
        ("time", "22:13", time(22, 13)),  # as java.time.LocalTime has it at full minutes
        ("time", "22:13:20.5", time(22, 13, 20, 500000)),
        ("time", "22:13:20.123456000", time(22, 13, 20, 123456)),
        ("time", "22:13:20.123456789", None),  # nanoseconds are not cut off in silence
        ("time", "22:13:20+01:00", None),
        ("time", "25:00", None),
        ("duration", "PT0S", timedelta(0)),
        ("duration", "P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("duration", "PT-0.5S", timedelta(seconds=-0.5)),
        ("duration", "-PT1H", timedelta(hours=-1)),
        ("duration", "PT1H-1M", timedelta(minutes=59)),
        ("duration", "P999999999DT23H59M59.999999S", timedelta.max),
        ("duration", "P1000000000D", None),
        ("duration", "PT0.0000001S", None),
        ("duration", "P1M", None),  # a month is no length of time
        ("duration", "P", None),
        ("duration", "PT", None),
        ("duration", "PT" + "9" * 5000 + "S", None),
    ],
)
def test_our_tags_for_dates_times_and_durations(tag: str, text: str, expected: object) -> None:
    payload = json.dumps([f"~#time/{tag}", text])
    if expected is None:
        with pytest.raises(PayloadDecodeError) as caught:
            decode(payload)
        assert len(str(caught.value)) < 200
    else:
        assert exact(decode(payload)) == exact(expected)


def test_a_keyword_is_its_text_in_python() -> None:
    payload = decode('["^ ","~:email","a@b.c","~:status","~:paid"]')

    assert payload["email"] == "a@b.c"  # type: ignore[index]
    assert payload["status"] == "paid"  # type: ignore[index]
    assert json.loads(json.dumps(payload)) == {"email": "a@b.c", "status": "paid"}
    assert f"{K('a')}" == "a"
    assert repr(K("a")) == "Keyword('a')"


@pytest.mark.parametrize(
    "value",
    [
        K("a"),
        Symbol("a"),
        Char("a"),
        URI("a"),
        TaggedValue("point", [1]),
        TaggedValue("point", (1,)),
        FrozenMap({1: 2}),
    ],
)
def test_values_survive_pickle_and_copy(value: object) -> None:
    for copied in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert exact(copied) == exact(value)
        assert copied == value
    if value != TaggedValue("point", [1]):
        assert hash(pickle.loads(pickle.dumps(value))) == hash(value)


def test_a_frozen_map_equals_a_dict_and_cannot_hold_what_has_no_hash() -> None:
    assert FrozenMap({"a": 1}) == {"a": 1}
    assert {FrozenMap({"a": 1}): 2}[FrozenMap({"a": 1})] == 2
    assert "a" in FrozenMap({"a": 1})
    assert len(FrozenMap({"a": 1})) == 1
    assert repr(FrozenMap({"a": 1})) == "FrozenMap({'a': 1})"
    with pytest.raises(TypeError):
        FrozenMap({"a": []})


@pytest.mark.parametrize(
    "text",
    [
        '["^ ","~i1",1,"~d1.0",2]',
        '["^ ","~i1",1,"~?t",2]',
        '["^ ","~i1",1,"~f1.00",2]',
        '["^ ","~:a",1,"a",2]',
        '["^ ","~:a",1,"~$a",2]',
        '["^ ","~ra",1,"~ca",2]',
        '{"a":1,"~:a":2}',
        '{"a":1,"a":2}',
        '{"a":1,"\\u0061":2}',
        '["~#set",[1,1.0]]',
        '["~#set",[0,false]]',
        '["~#set",["~:a","a"]]',
        '["~#set",[[1],["~#list",[1.0]]]]',
        '["~#cmap",[[1],2,[true],3]]',
        '["~#cmap",[["^ ","~:a",1],2,["^ ","a",1],3]]',
    ],
)
def test_keys_that_are_equal_only_in_python_are_refused_not_lost(text: str) -> None:
    with pytest.raises(PayloadDecodeError, match="equal in Python"):
        decode(text)


def test_what_is_read_can_be_written_again_unchanged() -> None:
    text = '[["~#point",["^ ","~:x",1]],["^0","~Xabc"],"~:kkk","^1",["~#ratio",["~n1","~n3"]],"~$sym","~ca","~rx"]'
    assert encode(decode(text), keyword_keys=False) == text
