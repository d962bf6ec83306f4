"""The serializer of plain JSON. That of Transit has tests of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from django_proletarian import PayloadDecodeError, PayloadEncodeError
from django_proletarian.serializers import JSONSerializer

ID = UUID("00000000-0000-4000-8000-000000000001")


class Backwards(json.JSONEncoder):
    def default(self, value: object) -> object:
        return str(value)[::-1]


@pytest.mark.parametrize("value", [None, True, 1.5, "text", [1, [2]], {"a": {"b": None}}])
def test_what_json_holds_comes_back_as_it_was(value: object) -> None:
    serializer = JSONSerializer()
    assert serializer.decode(serializer.encode(value)) == value


def test_what_djangos_encoder_knows_comes_back_as_text() -> None:
    serializer = JSONSerializer()
    given = {"id": ID, "at": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("9.90")}
    assert serializer.decode(serializer.encode(given)) == {"id": str(ID), "at": "2026-01-01T00:00:00Z", "price": "9.90"}


@pytest.mark.parametrize("encoder", [Backwards, "tests.rules.test_serializers:Backwards"])
def test_another_encoder_is_a_class_or_the_path_to_one(encoder: type[json.JSONEncoder] | str) -> None:
    assert JSONSerializer(encoder=encoder).encode([Decimal("1.5")]) == '["5.1"]'


def circle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [object(), float("nan"), {(1, 2): 3}, circle()])
def test_what_json_can_not_hold_is_refused(value: object) -> None:
    with pytest.raises(PayloadEncodeError, match="payload: JSON can't hold it: "):
        JSONSerializer().encode(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "payload is not JSON: Expecting value at character 0"),
        ('{"secret": 1,}', "payload is not JSON: "),
        ("[" * 1_000_000, "payload can't be read as JSON: RecursionError"),
        ("1" * 5_000, "payload can't be read as JSON: ValueError"),
    ],
)
def test_what_is_no_json_is_refused_without_a_word_of_it(text: str, said: str) -> None:
    with pytest.raises(PayloadDecodeError, match=said) as error:
        JSONSerializer().decode(text)
    assert "secret" not in str(error.value)
