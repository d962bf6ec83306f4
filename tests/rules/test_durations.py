"""Durations as a person types them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_proletarian import durations


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("90m", timedelta(minutes=90)),
        ("45s", timedelta(seconds=45)),
        ("45", timedelta(seconds=45)),
        (" 1.5d ", timedelta(hours=36)),
        ("0", timedelta(0)),
    ],
)
def test_a_number_and_a_unit_are_a_duration(text: str, duration: timedelta) -> None:
    assert durations.parse(text) == duration


@pytest.mark.parametrize("text", ["", "d", "30 days", "-1d", "1d12h", "1w", "nan", "inf", "1e3", "٣d", "365001d"])
def test_anything_else_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration|is longer than"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.44, "0.4s"),
        (59.6, "1m"),
        (75, "1m 15s"),
        (3600, "1h"),
        (3605, "1h"),
        (90061, "1d 1h"),
        (30 * 86400, "30d"),
    ],
)
def test_seconds_are_shown_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert durations.shown(seconds) == text
