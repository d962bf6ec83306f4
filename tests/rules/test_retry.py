"""The retry rules. Tables mirror proletarian/retry_test.clj; delays are seconds here, milliseconds there."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian.errors import InvalidRetryStrategy
from django_proletarian.retry import (
    LONGEST_DELAY,
    GaveUp,
    RetryAfter,
    RetryStrategy,
    as_strategy,
    decide,
    decide_after_crash,
)

NOW = timedelta(0)
ONE, TWO = timedelta(seconds=1), timedelta(seconds=2)


# Source: retry_test.clj, retry-data-test.
@pytest.mark.parametrize(
    ("strategy", "attempts", "verdict"),
    [
        pytest.param(
            {"retries": 2, "delays": [1, 2]}, 2, RetryAfter(TWO, 1), id="the second delay after the second run"
        ),
        pytest.param({"retries": 0}, 1, GaveUp(0), id="no retries"),
        pytest.param({"retries": 1}, 1, RetryAfter(NOW, 1), id="one retry, at once"),
        pytest.param({"retries": 2}, 1, RetryAfter(NOW, 2), id="two retries, the first at once"),
        pytest.param({"retries": 1}, 2, GaveUp(0), id="the only retry is used up"),
        pytest.param({"retries": 5}, 2, RetryAfter(NOW, 4), id="one of five used"),
        pytest.param({"retries": 5}, 3, RetryAfter(NOW, 3), id="two of five used"),
        pytest.param({"retries": 1, "delays": None}, 1, RetryAfter(NOW, 1), id="delays nil is no delay"),
        pytest.param({"retries": 1, "delays": []}, 1, RetryAfter(NOW, 1), id="empty delays is no delay"),
        pytest.param({"retries": 1, "delays": [0]}, 1, RetryAfter(NOW, 1), id="a delay of zero is no delay"),
        pytest.param({"retries": 1, "delays": [1]}, 1, RetryAfter(ONE, 1), id="one retry with its delay"),
        pytest.param({"retries": 2, "delays": [1]}, 1, RetryAfter(ONE, 2), id="the first of two, one delay"),
        pytest.param({"retries": 2, "delays": [1]}, 2, RetryAfter(ONE, 1), id="past the end the last delay again"),
        pytest.param({"retries": 2, "delays": [1, 2]}, 2, RetryAfter(TWO, 1), id="each retry its own delay"),
        pytest.param({"retries": 10, "delays": [1, 2]}, 3, RetryAfter(TWO, 8), id="third run, two delays"),
        pytest.param({"retries": 10, "delays": [1, 2]}, 4, RetryAfter(TWO, 7), id="fourth run, two delays"),
        # Not in the original's table, but in its rule:
        pytest.param(None, 1, GaveUp(None), id="no strategy"),
        pytest.param({"retries": 2}, 5, GaveUp(-2), id="a strategy that became stricter meanwhile"),
        pytest.param({"retries": 0, "delays": [1]}, 7, GaveUp(0), id="no retries is 0 left, however many were made"),
        pytest.param(
            RetryStrategy(1, [timedelta(seconds=2)]), 1, RetryAfter(TWO, 1), id="as an object, with timedeltas"
        ),
    ],
)
def test_what_becomes_of_a_failed_job(strategy: Any, attempts: int, verdict: RetryAfter | GaveUp) -> None:
    assert decide(attempts, strategy) == verdict


# Source: retry_test.clj, valid-retry-strategy?-test, "valid values".
@pytest.mark.parametrize(
    "strategy",
    [
        {"retries": 0},
        {"retries": 1},
        {"retries": 10},
        {"retries": 10, "delays": []},
        {"retries": 10, "delays": [0]},
        {"retries": 10, "delays": [1]},
        {"retries": 2, "delays": [2, 4]},
        {"retries": 2, "delays": [2, 4, 8, 8]},
        {"retries": 2, "delays": [0.5, timedelta(minutes=1)]},
        {"retries": 2, "delays": (1, 2)},
        {"retries": 1, "delays": [LONGEST_DELAY]},
    ],
)
def test_a_valid_strategy(strategy: Any) -> None:
    assert as_strategy(strategy) == RetryStrategy(strategy["retries"], strategy.get("delays", ()))


# Source: retry_test.clj, "invalid values"; nil there is "no strategy" for its callers, as None is here.
@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({}, "no retry strategy"),
        ({"retries": None}, "not None"),
        ({"retries": 1.1}, "not 1.1"),
        ({"retries": -1}, "not -1"),
        ({"retries": True}, "not True"),
        ({"retries": 1, "delays": "12"}, "not '12'"),
        ({"retries": 1, "delays": {1}}, "not {1}"),
        ({"retries": 1, "delays": [-1]}, "not -1"),
        ({"retries": 1, "delays": [-1e300]}, "not -1e[+]300"),
        ({"retries": 1, "delays": [None]}, "not None"),
        ({"retries": 1, "delays": [True]}, "not True"),
        ({"retries": 1, "delays": [math.nan]}, "not nan"),
        ({"retries": 1, "delays": [math.inf]}, "not inf"),
        ({"retries": 1, "delays": [LONGEST_DELAY + ONE]}, "from 0 to 365000 days"),
        ({"retries": 1, "delay": [1]}, "no retry strategy"),
        (3, "no retry strategy"),
        ("three", "no retry strategy"),
        ([3], "no retry strategy"),
    ],
)
def test_an_invalid_strategy_says_what_is_wrong(strategy: Any, said: str) -> None:
    with pytest.raises(InvalidRetryStrategy, match=said):
        decide(1, strategy)


delays = st.lists(st.floats(0, 1e6) | st.timedeltas(timedelta(0), LONGEST_DELAY), max_size=5)


@given(st.integers(0, 50), delays)
def test_a_job_that_always_fails_runs_retries_plus_one_times(retries: int, delays: list[float | timedelta]) -> None:
    strategy = RetryStrategy(retries, delays)
    runs = 1
    while isinstance(verdict := decide(runs, strategy), RetryAfter):
        assert verdict.retries_left == retries + 1 - runs > 0
        assert not strategy.delays or verdict.delay in strategy.delays
        runs += 1
    assert runs == retries + 1


@pytest.mark.parametrize(
    ("strategy", "attempts", "verdict"),
    [
        pytest.param(None, 1, RetryAfter(ONE, 2), id="a neighbour's crash gives up no job that has no strategy"),
        pytest.param(None, 2, RetryAfter(ONE, 1), id="nor does the second"),
        pytest.param(None, 3, GaveUp(None), id="the third does"),
        pytest.param({"retries": 0}, 2, RetryAfter(ONE, 1), id="a strategy of fewer runs counts as MAX_CRASHES"),
        pytest.param({"retries": 2}, 2, RetryAfter(ONE, 1), id="as many runs as MAX_CRASHES"),
        pytest.param({"retries": 2}, 3, GaveUp(0), id="and they are used up"),
        pytest.param({"retries": 4}, 3, RetryAfter(ONE, 2), id="more runs than MAX_CRASHES"),
        pytest.param({"retries": 4}, 5, GaveUp(0), id="and they are used up too"),
        pytest.param({"retries": 4}, 9, GaveUp(-4), id="a strategy that became stricter meanwhile"),
        pytest.param({"retries": 4, "delays": [1, 2]}, 2, RetryAfter(TWO, 3), id="the strategy's own delay"),
        pytest.param({"retries": 4, "delays": [1, 2]}, 4, RetryAfter(TWO, 1), id="the last one again"),
        pytest.param({"retries": 1, "delays": [0]}, 1, RetryAfter(NOW, 2), id="a delay of zero is one"),
    ],
)
def test_a_job_is_given_up_after_a_crash_when_both_its_strategy_and_max_crashes_are_used_up(
    strategy: Any, attempts: int, verdict: Any
) -> None:
    assert decide_after_crash(attempts, strategy, max_crashes=3, stagger=NOW) == verdict


@given(
    attempts=st.integers(1, 50),
    retries=st.integers(0, 50),
    max_crashes=st.integers(1, 50),
    stagger=st.timedeltas(NOW, timedelta(minutes=1)),
)
def test_a_crashed_job_is_run_again_while_either_limit_allows_it_put_off_by_the_stagger(
    attempts: int, retries: int, max_crashes: int, stagger: timedelta
) -> None:
    verdict = decide_after_crash(attempts, RetryStrategy(retries, [2]), max_crashes, stagger)
    limit = max(retries + 1, max_crashes)
    expected = RetryAfter(TWO + stagger, limit - attempts) if attempts < limit else GaveUp(limit - attempts)
    assert verdict == expected
