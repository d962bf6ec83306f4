"""The bars of the overview's charts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian.charts import HEIGHT, LEAST, LINE, WIDTH, Bar, bars


def edges(bar: Bar) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    x, y = float(bar.x), float(bar.y)
    return x, y, x + float(bar.width), y + float(bar.height)


def test_successes_stand_on_the_line_and_failures_hang_from_it() -> None:
    up, down = bars([4, 0], [0, 4])
    assert (up.failed, down.failed) == (False, True)
    assert edges(up)[3] == pytest.approx(LINE)
    assert edges(down)[1] == pytest.approx(LINE)
    assert edges(up)[2] < edges(down)[0]


def test_heights_are_in_proportion() -> None:
    high, low = bars([100, 50], [0, 0])
    assert float(high.height) == LINE
    assert float(low.height) == LINE / 2


def test_one_failure_beside_a_million_successes_is_seen() -> None:
    _, failed = bars([1_000_000], [1])
    assert float(failed.height) == LEAST


def test_as_many_failures_as_there_may_be_do_not_leave_the_drawing() -> None:
    [failed] = bars([0], [1_000_000])
    assert edges(failed)[3] <= HEIGHT + 0.01


@pytest.mark.parametrize("numbers", [[], [0], [0] * 60])
def test_nothing_finished_draws_nothing(numbers: list[int]) -> None:
    assert bars(numbers, numbers) == ()


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=60))
def test_every_bar_is_inside_the_drawing(numbers: list[tuple[int, int]]) -> None:
    drawn = bars([good for good, _ in numbers], [bad for _, bad in numbers])
    assert len(drawn) == sum(bool(good) + bool(bad) for good, bad in numbers)
    for bar in drawn:
        left, top, right, bottom = edges(bar)
        assert 0 <= left < right <= WIDTH + 0.01
        assert -0.01 <= top < bottom <= HEIGHT + 0.01
