"""The near name that was meant."""

from __future__ import annotations

import pytest

from django_proletarian.suggestions import did_you_mean

KNOWN = ["THREADS", "shop/mail", "shop/mails", "billing/charge-card"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("THREAD", 'Did you mean "THREADS"? ', id="a letter is missing"),
        pytest.param("threads", 'Did you mean "THREADS"? ', id="upper and lower case"),
        pytest.param("shop/mial", 'Did you mean "shop/mail" or "shop/mails"? ', id="two are near"),
        pytest.param("billing/charge_card", 'Did you mean "billing/charge-card"? ', id="Clojure's dash"),
        pytest.param("reports", "", id="none is near"),
        pytest.param("shop/mail", 'Did you mean "shop/mails"? ', id="never itself"),
        pytest.param("", "", id="nothing given"),
    ],
)
def test_a_name_that_differs_by_little_is_suggested(given: str, said: str) -> None:
    assert did_you_mean(given, KNOWN) == said
