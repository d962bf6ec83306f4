"""Names in Python and names as stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian import names
from django_proletarian.names import PlainName


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (":success", "success"),
        (":proletarian/default", "proletarian/default"),
        (":shop.jobs/send-receipt", "shop.jobs/send-receipt"),
        (":a/b/c", "a/b/c"),
        (":kø/blåbær", "kø/blåbær"),
        ("send email", PlainName("send email")),
        ("a/b", PlainName("a/b")),
        ("", PlainName("")),  # the original writes nil so
        (":", PlainName(":")),
        ("::odd", PlainName("::odd")),
    ],
)
def test_a_stored_name_in_python_and_back(stored: str, name: str) -> None:
    read = names.from_stored(stored)
    assert (read, type(read)) == (name, type(name))
    assert names.to_stored(read) == stored


@given(st.text())
def test_any_stored_text_survives_a_round_trip(stored: str) -> None:
    assert names.to_stored(names.from_stored(stored)) == stored


@given(st.text())
def test_any_name_shown_to_a_person_can_be_typed_again(stored: str) -> None:
    name = names.from_stored(stored)
    assert names.to_stored(names.parse(names.shown(name))) == stored


@pytest.mark.parametrize(
    ("typed", "stored"),
    [("mail", ":mail"), (":mail", ":mail"), ('"mail"', "mail"), ('""', ""), ("shop/mail", ":shop/mail")],
)
def test_what_a_person_types_names_a_keyword_or_in_quotes_a_string(typed: str, stored: str) -> None:
    assert names.to_stored(names.parse(typed)) == stored
