"""What encode() makes of Python's own types, and what it refuses, saying where and what to pass instead."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from django_proletarian.errors import EnqueueError, PayloadEncodeError
from django_proletarian.transit import URI, Char, FrozenMap, Keyword, Symbol, TaggedValue, decode, encode
from tests.rules.transit_exact import exact


class Color(Enum):
    RED = "red"
    RGB = (1, 2, 3)


class Level(IntEnum):
    LOW = 1


class Size(StrEnum):
    BIG = "big"


class Flag(IntFlag):
    A = 1
    B = 2


class Nested(Enum):
    INNER = Color.RED


class SafeText(str):
    pass


class Count(int):
    def __str__(self) -> str:
        return "many"

    __repr__ = __str__


class Ratio(float):
    def __repr__(self) -> str:
        return "some"


class Moment(datetime):
    pass


Point = namedtuple("Point", "x y")

NOW = datetime(2023, 11, 14, 22, 13, 20, 123999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, '["~#\'",null]'),
        (True, '["~#\'",true]'),
        ("a", '["~#\'","a"]'),
        (Keyword("abcd"), '["~#\'","~:abcd"]'),
        ([], "[]"),
        ({}, '["^ "]'),
        (set(), '["~#set",[]]'),
        ({"email": "a@b.c", "id": 42}, '["^ ","~:email","a@b.c","~:id",42]'),
        ([1, 1.0, -0.0, 1e21, 0.1], "[1,1.0,-0.0,1e+21,0.1]"),
        ([2**53 - 1, 2**53, -(2**53)], '[9007199254740991,"~i9007199254740992","~i-9007199254740992"]'),
        ([2**63 - 1, 2**63], '["~i9223372036854775807","~n9223372036854775808"]'),
        ([-(2**63), -(2**63) - 1], '["~i-9223372036854775808","~n-9223372036854775809"]'),
        ([float("nan"), float("inf"), float("-inf")], '["~zNaN","~zINF","~z-INF"]'),
        ([Decimal("1.50"), Decimal("1E+3"), Decimal("-0")], '["~f1.50","~f1E+3","~f-0"]'),
        ([Fraction(1, 3), Fraction(2**70, 3)], '[["~#ratio",["~n1","~n3"]],["^0",["~n1180591620717411303424","~n3"]]]'),
        ([UUID(int=1), b"\x01\x02\x03", bytearray(b"a"), memoryview(b"ab")[::2]], None),
        ([UUID(int=1), b"\x01"], '["~u00000000-0000-0000-0000-000000000001","~bAQ=="]'),
        ([bytearray(b"\x01"), memoryview(b"\x01\x02")[::2]], '["~bAQ==","~bAQ=="]'),
        (["~a", "^a", "`a", "a~", "~", "^", "`"], '["~~a","~^a","~`a","a~","~~","~^","~`"]'),
        (["", "^ ", "~:a", "~#set"], '["","~^ ","~~:a","~~#set"]'),
        ([Symbol("a"), Char("a"), URI("http://x")], '["~$a","~ca","~rhttp://x"]'),
        ((1, (2,)), "[1,[2]]"),
        ({(1, 2)}, '["~#set",[[1,2]]]'),
        (frozenset({"a"}), '["~#set",["a"]]'),
        ('"\\\x00\x1f\x7f\u2028å😀', '["~#\'","\\"\\\\\\u0000\\u001f\x7f\u2028å😀"]'),
        # moments and lengths of time
        (NOW, '["~#\'","~m1700000000123"]'),  # cut off towards the past
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), '["~#\'","~m-1"]'),
        (datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Oslo")), '["~#\'","~m1719828000000"]'),
        (datetime(1, 1, 1, tzinfo=UTC), '["~#\'","~m-62135596800000"]'),
        (date(2024, 2, 29), '["~#time/date","2024-02-29"]'),
        (time(22, 13), '["~#time/time","22:13:00"]'),
        (time(22, 13, 20, 5), '["~#time/time","22:13:20.000005"]'),
        (timedelta(0), '["~#time/duration","PT0S"]'),
        (timedelta(days=1, seconds=3723, microseconds=500000), '["~#time/duration","PT25H2M3.5S"]'),
        (timedelta(microseconds=-1), '["~#time/duration","PT-0.000001S"]'),
        (timedelta(hours=-25, seconds=-1), '["~#time/duration","PT-25H-1S"]'),
        ([date(2024, 2, 29)] * 2, '[["~#time/date","2024-02-29"],["^0","2024-02-29"]]'),
        # subclasses are written as what they are based on
        ([SafeText("~a"), Count(7), Ratio(1.5), Moment(1970, 1, 1, tzinfo=UTC)], '["~~a",7,1.5,"~m0"]'),
        ([Color.RED, Color.RGB, Level.LOW, Size.BIG, Nested.INNER, Flag.A | Flag.B], '["red",[1,2,3],1,"big","red",3]'),
        ([OrderedDict(a=1), defaultdict(int, a=1), Point(1, 2)], '[["^ ","~:a",1],["^ ","~:a",1],[1,2]]'),
        # tagged values
        (TaggedValue("point", [1, 2]), '["~#point",[1,2]]'),
        (TaggedValue("X", "abc"), '["~#\'","~Xabc"]'),
        (TaggedValue("X", 1), '["~#X",1]'),
        (TaggedValue("X", Keyword("abc")), '["~#X","~:abc"]'),
        (TaggedValue("#", "set"), '["~##","set"]'),  # as a string it would be a tag
        (TaggedValue("😀", "abc"), '["~#😀","abc"]'),  # two chars in Java
        # keys
        ({"": 1, "~a": 2, "a b": 3, Keyword("b"): 4}, '["^ ","",1,"~:~a",2,"~:a b",3,"~:b",4]'),
        ({Size.BIG: 1, SafeText("c"): 2, Level.LOW: 3}, '["^ ","~:big",1,"~:c",2,"~i1",3]'),
        ({None: 1, True: 2, 2: 3, 2**70: 4}, '["^ ","~_",1,"~?t",2,"~i2",3,"~n1180591620717411303424",4]'),
        ({0.5: 1, 1e7: 2, 12345678.9: 3, -1e-5: 4, 5e-324: 5, 1e22: 6}, None),
        ({1e7: 1}, '["^ ","~d1.0E7",1]'),
        ({-0.00012: 1}, '["^ ","~d-1.2E-4",1]'),
        ({123456.5: 1}, '["^ ","~d123456.5",1]'),
        ({1e22: 1, float("inf"): 2}, '["^ ","~d1.0E22",1,"~zINF",2]'),
        ({NOW: 1, UUID(int=1): 2}, '["^ ","~m1700000000123",1,"~u00000000-0000-0000-0000-000000000001",2]'),
        ({(1,): 1, "a": 2}, '["~#cmap",[[1],1,"~:a",2]]'),
        ({date(2024, 2, 29): 1}, '["~#cmap",[["~#time/date","2024-02-29"],1]]'),
        ({FrozenMap({"a": 1}): 1}, '["~#cmap",[["^ ","~:a",1],1]]'),
        ({TaggedValue("X", "abc"): 1}, '["^ ","~Xabc",1]'),
        ({TaggedValue("X", 1): 1}, '["~#cmap",[["~#X",1],1]]'),
    ],
)  # fmt: skip
def test_values_are_written_as_the_original_writes_them(value: object, text: str | None) -> None:
    written = encode(value)
    if text is not None:
        assert written == text
    decode(written)


@pytest.mark.parametrize(
    "value",
    [
        *(timedelta.min, timedelta.max, timedelta(days=-1, microseconds=1), timedelta(microseconds=999999)),
        *(date.min, date.max, time.min, time.max, time(22, 13, 20, 100)),
        *(datetime.min.replace(tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        *({1, 2.5, "a"}, frozenset({frozenset({1}), (1,)}), {(1, FrozenMap({2: 3})): [4]}),
        *(float("inf"), 5e-324, -0.0, Decimal("1E-400"), Fraction(-1, 3), 10**4300 - 1, {1e22: 1, 1e-7: 2, 0.1: 3}),
        {"": {None: {True: {0.5: {UUID(int=1): {b"": {Decimal("0.1"): {NOW.replace(microsecond=0): 1}}}}}}}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_extreme_values_come_back_exactly(value: object) -> None:
    # Sets are sets at the top, whichever they were.
    expected = set(value) if isinstance(value, frozenset) else value
    assert exact(decode(encode(value))) == exact(expected)


def test_str_keys_are_keywords_unless_one_says_otherwise() -> None:
    payload = {"email": 1, Keyword("id"): 2, "nested": [{"email": 3}], ("a",): {"x": 4}}
    del payload[("a",)]

    assert encode(payload) == '["^ ","~:email",1,"~:id",2,"~:nested",[["^ ","^0",3]]]'
    assert encode(payload, keyword_keys=False) == '["^ ","email",1,"~:id",2,"nested",[["^ ","^0",3]]]'
    assert encode({("a",): 1, "abcd": 2}, keyword_keys=False) == '["~#cmap",[["a"],1,"abcd",2]]'


def test_a_keyword_that_was_read_is_written_as_a_keyword_again() -> None:
    text = '["^ ","~:status","~:paid","~:note","paid"]'
    assert encode(decode(text)) == text


def test_lazy_strings_are_evaluated() -> None:
    functional = pytest.importorskip("django.utils.functional")
    lazy = functional.lazystr("hello")

    assert encode({"subject": lazy, lazy: 1}) == '["^ ","~:subject","hello","~:hello",1]'


@dataclass
class Order:
    total: int


class Model:
    """As Django's models are recognised, without importing Django."""

    _meta = object()
    pk = 7


class QuerySet:
    def values_list(self) -> None: ...

    def __iter__(self) -> Iterator[object]:
        return iter([])


def endless() -> list[object]:
    items: list[object] = []
    items.append({"again": items})
    return items


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"items": [1, 2, 3, {"price": 1j}]}, 'payload["items"][3]["price"]: a complex can\'t be written'),
        ({"a": {"x": 1, (1, 2j): 2}}, 'payload["a"], key number 1[1]: a complex'),
        ({"a": {2j: 2}}, 'payload["a"], key number 0: a complex'),
        ({"a": {2j}}, 'payload["a"]{...}: a complex'),
        ({1: {None: [object()]}}, "payload[1][None][0]: a object can't be written"),
        (TaggedValue("point", [1, object()]), "payload.value[1]: a object"),
        ({'quo"te': object()}, 'payload["quo\\"te"]: '),
        (object(), "payload: a object can't be written"),
        (Order(1), "payload: a Order is a dataclass, which Transit can't hold; pass dataclasses.asdict(instance)"),
        ({"order": Model()}, 'payload["order"]: a Model is a model instance'),
        ({"order": Model()}, "pass its primary key, instance.pk"),
        (QuerySet(), "list(queryset.values_list('pk', flat=True))"),
        (deque([1]), "pass list(...)"),
        ((n for n in "abc"), "pass list(...)"),
        (range(3), "pass list(...)"),
        ({}.keys(), "pass list(...)"),
        (len, "payload: a builtin_function_or_method can't be written"),
        (int, "payload: a type can't be written"),
        ({"at": datetime(2023, 1, 1)}, 'payload["at"]: a naive datetime is no moment in time; pass an aware one'),
        ({datetime(2023, 1, 1): 1}, "payload, key number 0: a naive datetime"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),  # in UTC, year 0
        (time(12, tzinfo=UTC), "payload: a time with a zone"),
        (Decimal("NaN"), "payload: a Decimal that is NaN or infinite"),
        (Decimal("sNaN"), "payload: a Decimal that is NaN or infinite"),
        (Decimal("Infinity"), "payload: a Decimal that is NaN or infinite"),
        (Decimal("1E+3000000000"), "payload: a Decimal whose exponent"),
        (Decimal("1" * 4301), "payload: a Decimal of more than 4300 digits"),
        (10**4300, "payload: an int of more than 4300 digits"),
        (Char("ab"), "payload: a char is not one character"),
        (Char("😀"), "payload: a char is not one character"),
        (["\ud800"], "payload[0]: a str with half a character"),
        ([Keyword("\ud800")], "payload[0]: a str with half a character"),
        ({"\ud800": 1}, "payload, key number 0: a str with half a character"),
        ({"a\ud800": object()}, "payload, key number 0: a str with half a character"),
        (TaggedValue("\ud800", 1), "payload: a str with half a character"),
        (TaggedValue("X", "\ud800"), "payload: a str with half a character"),
        (TaggedValue("set", [1]), "tag 'set', which is Transit's own; pass the value"),
        (TaggedValue(":", "a"), "tag ':', which is Transit's own"),
        (TaggedValue("time/date", "x"), "tag 'time/date', which is Transit's own"),
        (TaggedValue("", 1), "at least one character"),
        (TaggedValue(1, 1), "at least one character"),  # type: ignore[arg-type]
        (endless(), "a container that contains itself"),
        (nested(1201), "nested deeper than 1200 levels"),
        # keys that differ in Python and would not differ when written
        ({"red": 1, Color.RED: 2}, "can't be read again"),
        ({"red", Color.RED}, "can't be read again"),
        ({NOW: 1, NOW.replace(microsecond=123000): 2}, "can't be read again"),
        ({("red",): 1, (Color.RED,): 2}, "can't be read again"),
        ({float("nan"): 1, Decimal("0.5"): 2, Color.RED: 3, "red": 4}, "can't be read again"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_written_is_refused_with_its_place_and_a_remedy(value: object, message: str) -> None:
    with pytest.raises(PayloadEncodeError, match=re.escape(message)):
        encode(value)


def test_a_query_dict_is_refused_because_all_but_the_last_value_of_a_key_would_be_lost() -> None:
    datastructures = pytest.importorskip("django.utils.datastructures")
    with pytest.raises(PayloadEncodeError, match="several values"):
        encode(datastructures.MultiValueDict({"a": [1, 2]}))


def test_a_refused_payload_is_an_enqueue_error() -> None:
    assert issubclass(PayloadEncodeError, EnqueueError)


def test_deep_values_are_written_and_read_back() -> None:
    text = encode(nested(1200))
    assert text == "[" * 1200 + "1" + "]" * 1200
    assert encode(decode(text)) == text

    value: object = frozenset({1})
    for level in range(1100):
        value = frozenset({value}) if level % 3 else ("a", value) if level % 2 else FrozenMap({"k": value})
    again = decode(encode([value]))
    assert encode(again) == encode([value])


def test_the_path_of_a_deep_value_is_cut() -> None:
    value: object = object()
    for _ in range(1000):
        value = {"level": value}
    with pytest.raises(PayloadEncodeError) as caught:
        encode(value)
    assert len(str(caught.value)) < 500
    assert str(caught.value).startswith('payload...["level"]["level"]')


def test_a_shared_value_is_no_endless_one() -> None:
    shared = [1]
    assert encode([shared, shared, {"a": shared}]) == '[[1],[1],["^ ","~:a",[1]]]'


def test_decimals_are_written_in_full_whatever_the_decimal_context() -> None:
    with localcontext() as context:
        context.prec = 3
        value = Decimal("123456789.123456789")
        assert decode(encode(value)) == value
        assert decode(encode({1.2345678901234567e22: 1})) == {1.2345678901234567e22: 1}


def test_a_low_limit_on_digits_makes_a_clear_error() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(PayloadEncodeError, match=r"payload\[0\]: Exceeds the limit"):
            encode([10**1000])
    finally:
        sys.set_int_max_str_digits(before)


def test_small_numbers_are_themselves_as_keys_beside_those_that_no_string_stands_for() -> None:
    assert encode({1: "a", (1,): "b"}) == '["~#cmap",[1,"a",[1],"b"]]'
    assert encode({1: "a"}) == '["^ ","~i1","a"]'
