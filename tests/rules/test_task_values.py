"""Arguments and return values as JSON has them."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian import transit
from django_proletarian.tasks import envelope
from django_proletarian.tasks.envelope import Envelope
from django_proletarian.tasks.values import normalised

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


class Text(str, Enum):  # noqa: UP042 # not a StrEnum, whose str() is the text
    A = "a"


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param((1, (2, [3])), [1, [2, [3]]], id="tuples are lists"),
        pytest.param(b"\xc3\xa9", "é", id="bytes are UTF-8"),
        pytest.param(OrderedDict(a=(1,)), {"a": [1]}, id="any mapping is a dict"),
        pytest.param(Text.A, "a", id="a text of an Enum"),
        pytest.param(Number.ONE, 1, id="a number of an Enum"),
        pytest.param(True, True, id="a bool stays one"),
        pytest.param(range(3), [0, 1, 2], id="any sequence is a list"),
    ],
)
def test_what_json_has_a_form_for_takes_it(value: object, expected: object) -> None:
    found = normalised(value, "it")
    assert found == expected
    assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize("kind", [Text.A, Number.ONE, type("S", (str,), {})("s")])
def test_subclasses_become_what_they_derive_from(kind: object) -> None:
    assert type(normalised(kind, "it")) in (str, int)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        pytest.param([float("nan")], ValueError, r"it\[0\] is nan, which JSON has no number for", id="NaN"),
        pytest.param({"a": float("-inf")}, ValueError, r"it\['a'\] is -inf", id="infinity"),
        pytest.param(["a\x00"], ValueError, r"it\[0\] has a NUL character", id="NUL"),
        pytest.param({"a\x00": 1}, ValueError, r"a key in it has a NUL", id="NUL in a key"),
        pytest.param("\ud800", ValueError, r"it has half of a surrogate pair at character 0", id="a lone surrogate"),
        pytest.param({1: 2}, TypeError, r"Unsupported type: <class 'int'>, of the key 1 in it", id="a number as key"),
        pytest.param({(1,): 2}, TypeError, r"Unsupported type: <class 'tuple'>", id="a tuple as key"),
        pytest.param([object()], TypeError, r"Unsupported type: <class 'object'>, of it\[0\]", id="an object"),
        pytest.param({1, 2}, TypeError, r"Unsupported type: <class 'set'>", id="a set"),
        pytest.param(b"\xff", ValueError, r"Unsupported value: it is of <class 'bytes'>", id="bytes that are no text"),
    ],
)
def test_what_json_has_no_form_for_is_refused_with_its_place(value: object, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        normalised(value, "it")


@given(st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_what_a_task_is_called_with_comes_back_as_it_was(args: list[Any], kwargs: dict[str, Any]) -> None:
    called = Envelope(args=args, kwargs=kwargs, backend="default")
    payload = transit.decode(transit.encode(called.as_payload()))
    assert envelope.is_envelope(payload)
    read = envelope.read(payload)
    assert json.dumps([read.args, read.kwargs]) == json.dumps([args, kwargs])  # types too, such as 1 and 1.0
    assert {type(key) for key in read.kwargs} <= {str}


@pytest.mark.parametrize("payload", [None, [], {}, {"args": [], "kwargs": {}}, "django.tasks/args", {"order_id": 4}])
def test_other_payloads_are_no_tasks(payload: object) -> None:
    assert not envelope.is_envelope(payload)
