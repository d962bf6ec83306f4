"""A payload column is other people's data: any text is read or refused with PayloadDecodeError, at bearable cost."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

import pytest

from django_proletarian.errors import PayloadDecodeError
from django_proletarian.transit import decode, encode
from django_proletarian.transit.text import MAX_DEPTH, _parse_deep, parse


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at character 0"),
        ("[", "at character 1"),
        ("[1", "delimiter"),
        ("[1,]", "at character"),
        ('["a', "Unterminated string"),
        ("[1] 2", "Extra data at character 4"),
        ('{"a"}', "delimiter"),
        ('{"a":}', "Expecting value"),
        ("{1:2}", "property name"),
        ("\ufeff[]", "at character 0"),
        ("[\x00]", "at character 1"),
        ('["\n"]', "control character"),
        ('["\\x"]', "escape"),
        ("[NaN]", "NaN is no JSON"),
        ("[Infinity]", "Infinity is no JSON"),
        ("[-Infinity]", "Infinity is no JSON"),
        ("[1e999]", "range of a double"),
        ('["~d1e999"]', "range of a double"),
        ('["\\ud800"]', "lone surrogate at character 2"),
        ('["\\udc00\\ud800"]', "lone surrogate at character 2"),
        ('["\\ud83d\\u0041"]', "lone surrogate at character 2"),
        ('["\ud800"]', "lone surrogate at character 2"),
        ('["^ ","~:a"]', "no value"),
        ('["^ ","~:a",1,"~:b"]', "no value"),
        ('["~#cmap",[1]]', "no value"),
        ('["^0"]', "cache code '\\^0'"),
        ('["^"]', "cache code"),
        ('["^\\\\"]', "cache code"),
        ('["^000"]', "cache code"),
        ('[1,"^ "]', "cache code"),
        ('["~:aaaa","^1"]', "cache code '\\^1'.*payload\\[1\\]"),
        ('["~:aaa","~:b","^1"]', "cache code"),  # "~:b" is too short to be cached
        ('["~#foo"]', "the tag 'foo' with 0 values"),
        ('["~#foo",1,2]', "the tag 'foo' with 2 values"),
        ('["~#",1]', "empty tag"),
        ('[1,"~#foo"]', "the tag 'foo' in the place of a value"),
        ('["^ ","~#foo",1]', "the tag 'foo' in the place of a value"),
        ('{"~:a":1,"~#foo":2}', "the tag 'foo' in the place of a value"),
        ('[["~#foo",1],2,"^0"]', "the tag 'foo' in the place of a value"),
        ('["~#set",1]', "before something other than an array"),
        ('["~#set",{}]', "before something other than an array"),
        ('["~#set",["~#set",[]]]', "in the place of a value"),
        ('["~#list","a"]', "before something other than an array"),
        ('["~#ratio",["~n1","~n0"]]', "a ratio"),
        ('["~#ratio",["~n1"]]', "a ratio"),
        ('["~#ratio",["~n1",true]]', "a ratio"),
        ('["~#ratio",["1","2"]]', "a ratio"),
        ('["~#u",1]', "before something other than a string"),
        ('["~#time/date",1]', "before something other than a string"),
        ('["~u531a379e31bb4ce18690158dceb64be6"]', "'~u'"),
        ('["~u{531a379e-31bb-4ce1-8690-158dceb64be6}"]', "'~u'"),
        ('["~i1_0"]', "'~i'"),
        ('["~i"]', "'~i'"),
        ('["~i\u0661"]', "'~i'"),  # int() would take an Arabic digit
        ('["~n 1"]', "'~n'"),
        ('["~d0x1"]', "'~d'"),
        ('["~dNaN"]', "'~d'"),
        ('["~fNaN"]', "'~f'"),
        ('["~fsNaN"]', "'~f'"),
        ('["~fInfinity"]', "'~f'"),
        ('["~f1E+9999999999"]', "exponent"),
        ('["~f1E+99999999999999999999999"]', "'~f'"),
        ('["~znan"]', "'~z'"),
        ('["~?x"]', "'~\\?'"),
        ('["~_x"]', "'~_'"),
        ('["~c"]', "a char"),
        ('["~cab"]', "a char"),
        ('["~c😀"]', "a char"),  # in Java, two
        ('["~bA"]', "'~b'"),
        ('["~b!!!!"]', "'~b'"),
        ('["~bå"]', "'~b'"),
        ('["~mx"]', "'~m'"),
        ('["~m253402300800000"]', "years 1 to 9999"),
        ('["~m-99999999999999999999999"]', "years 1 to 9999"),
        ('["~tyesterday"]', "years 1 to 9999"),
        ('["~t2023-01-01T25:00:00Z"]', "'~t'"),
    ],
)
def test_malformed_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(PayloadDecodeError, match=reason):
        decode(text)


def test_the_error_says_where_but_not_what() -> None:
    text = '["^ ","~:secret-key",[1,2,["^ ","~:other-secret","~uhunter2"]]]'
    with pytest.raises(PayloadDecodeError) as caught:
        decode(text)

    assert "at payload.value[0][2].value[0]." in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret-" not in shown
    assert "hunter2" not in shown
    assert caught.value.__cause__ is None


def test_a_json_error_does_not_carry_the_text_along() -> None:
    """JSONDecodeError has the whole text as `doc`; as context of our error it would reach error trackers."""
    with pytest.raises(PayloadDecodeError) as caught:
        decode('["hunter2"')
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


DEEP: dict[str, Callable[[int], str]] = {
    "arrays": lambda n: "[" * n + "]" * n,
    "arrays with more in them": lambda n: '["]",[],' * n + "1" + ",2]" * n,
    "maps": lambda n: '["^ ","~:a",' * n + "1" + "]" * n,
    "objects": lambda n: '{"a":' * n + "1" + "}" * n,
    "sets": lambda n: '["~#set",[' * n + "]]" * n,
    "tagged values": lambda n: '["~#foo",' * n + "1" + "]" * n,
    "composite keys": lambda n: '["~#cmap",[' * n + "1" + ",1]]" * n,
    "arrays in a set": lambda n: '["~#set",[' + "[" * n + "]" * n + "]]",
    "maps in a set": lambda n: '["~#set",[' + '["^ ","~:a",' * n + "1" + "]" * n + "]]",
    "tagged values in a set": lambda n: '["~#set",[' + '["~#foo",' * n + "1" + "]" * n + "]]",
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_thousand_levels_are_read(kind: str) -> None:
    value = decode(DEEP[kind](1000))
    assert encode(value, keyword_keys=False)


def at_stack_depth(levels: int, function: Callable[[], object]) -> object:
    return at_stack_depth(levels - 1, function) if levels else function()


@pytest.mark.parametrize("kind", DEEP)
def test_a_thousand_levels_are_read_by_a_caller_near_the_recursion_limit(kind: str) -> None:
    text = DEEP[kind](1000)
    depth_here = len(traceback.extract_stack())
    value = at_stack_depth(sys.getrecursionlimit() - depth_here - 50, lambda: decode(text))
    again = at_stack_depth(sys.getrecursionlimit() - depth_here - 50, lambda: encode(value, keyword_keys=False))
    assert isinstance(again, str)


def test_a_small_payload_is_read_and_written_by_a_caller_near_the_recursion_limit() -> None:
    """json's scanner counts its own levels on top of the caller's."""
    text = "[" * 90 + "]" * 90
    depth_here = len(traceback.extract_stack())
    for room in (20, 30, 50, 80, 100):
        depth = sys.getrecursionlimit() - depth_here - room
        assert at_stack_depth(depth, lambda: encode(decode(text))) == text


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("levels", [MAX_DEPTH - 10, MAX_DEPTH + 10, 1_000_000])
def test_any_deeper_text_is_read_or_refused_even_on_the_smallest_stack(kind: str, levels: int) -> None:
    """A thread has 128 KB of stack on Alpine Linux; json's own scanner would run over it and crash the process."""
    outcomes: list[object] = []

    def read() -> None:
        try:
            outcomes.append(decode(text))
        except PayloadDecodeError as error:
            outcomes.append(error)

    text = DEEP[kind](levels)
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=read)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()

    (outcome,) = outcomes
    assert isinstance(outcome, PayloadDecodeError) == (levels > MAX_DEPTH)


@pytest.mark.parametrize(
    "text", ["[" * 1_000_000, '{"a":' * 1_000_000, '["~#foo",' * 1_000_000, "[[" + "[]," * 500_000]
)
def test_deep_texts_without_an_end_are_refused(text: str) -> None:
    with pytest.raises(PayloadDecodeError):
        decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[ ]",
        "{ }",
        ' [ 1 , "]" , {"a" : [ ] , "b":{}} ] ',
        '[[],[[]],{},{"a":1,"b":[{"c":null}]}]',
        '["\\"[",-1.5e3,true,false,null,"\\u00e5"]',
        "1",
        '"a"',
        *("[,]", "[1,,2]", "[1,]", "[1 2]", "[}", "{]", '{"a"}', '{"a",1}', '{"a":1,}', '{"a":1:2}', '{"a":1 "b":2}'),
        *(
            "{,}",
            "{1:2}",
            "{[]:1}",
            "[]]",
            "[] []",
            "[",
            "{",
            "[1",
            "[[1]",
            '{"a":',
            '{"a":[',
            "",
            " ",
            "]",
            ":",
            "[tru]",
        ),
    ],
)
def test_reading_deep_texts_follows_the_same_grammar_as_json(text: str) -> None:
    try:
        expected = parse(text)
    except json.JSONDecodeError:
        with pytest.raises(json.JSONDecodeError):
            _parse_deep(text)
    else:
        assert _parse_deep(text) == expected


@pytest.mark.parametrize("form", ["{}", '["~i{}"]', '["~n{}"]', '["~f{}"]', '["~m{}"]', '["~#time/duration","PT{}S"]'])
def test_numbers_of_a_million_digits_are_refused(form: str) -> None:
    with pytest.raises(PayloadDecodeError, match="4300 digits"):
        decode(form.replace("{}", "9" * 1_000_000))


def test_numbers_of_4300_digits_are_read_and_written() -> None:
    for text in (f'["~n{"9" * 4300}"]', f'["~n-{"9" * 4300}"]', f'["~f0.{"9" * 4298}"]'):
        assert encode(decode(text)) == text
    assert decode("[" + "9" * 4300 + "]") == [10**4300 - 1]


def test_a_huge_exponent_is_held_and_never_written_out() -> None:
    for text in ('["~f1E+999999999"]', '["~#set",["~f1E+999999999","~d1.5",7]]', '["^ ","~f1E-999999999",1]'):
        assert isinstance(encode(decode(text)), str)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    with suppress(PayloadDecodeError):
        function()
    return time.perf_counter() - start


@pytest.mark.parametrize(
    "text",
    [
        # integers that all hash to 0: a dict of them would take minutes
        json.dumps(["^ ", *[part for n in range(60_000) for part in (f"~n{n * (2**61 - 1)}", 1)]]),
        json.dumps(["~#set", [f"~n{n * (2**61 - 1)}" for n in range(60_000)]]),
        json.dumps(["~#set", [n if n % 3 else f"~n{n * (2**61 - 1)}" for n in range(120_000)]]),
        json.dumps([["~#set", [f"~n{n * (2**61 - 1)}" for n in range(200)]] for _ in range(250)]),
        # a string that never ends, each escape of which might begin it anew
        "[" * 200 + '"' + '\\"' * 500_000,
        # one long key, hashed again and again
        json.dumps([["^ ", "~n" + "9" * 4300, 1], *[["^ ", "^0", 1]] * 50_000]),
        '["\\ud83d\\ude00' + "\\ud83d\\ude00" * 80_000 + '"]',
        json.dumps(["~b" + "A" * 1_000_001]),
        json.dumps(["~t2023-01-01T00:00:00." + "0" * 1_000_000 + "Z"]),
        json.dumps(["~d" + "1" * 1_000_000 + "x"]),
        json.dumps(["~f" + "1" * 4000 + "x"] * 200),
        json.dumps(["~#time/duration", "P" + "1" * 1_000_000]),
    ],
    ids=lambda text: text[:12],
)
def test_texts_made_to_take_quadratic_time_take_little(text: str) -> None:
    """Generous, since the machine may be busy; what it guards against takes a minute or more."""
    assert seconds(lambda: decode(text)) < 10


def test_many_keys_and_members_that_hash_apart_are_read() -> None:
    numbers = ",".join(map(str, range(300)))
    assert decode(f'["~#set",[{numbers}]]') == set(range(300))
    assert decode('["^ ",' + ",".join(f'"~i{number}",0' for number in range(300)) + "]") == dict.fromkeys(range(300), 0)
