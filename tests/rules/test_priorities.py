"""Queue and priority as one name, and apart again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian import PlainName, names, priorities

queues = st.text(min_size=1).filter(lambda queue: queue != ":")


@pytest.mark.parametrize(
    ("queue", "priority", "name"),
    [
        pytest.param("mail", 10, "mail+10", id="a high priority"),
        pytest.param("mail", -5, "mail-5", id="a low priority"),
        pytest.param("mail", 0, "mail", id="the usual priority is the queue itself"),
        pytest.param(":proletarian/default", 100, ":proletarian/default+100", id="the stored form"),
        pytest.param("eu-west-1", 7, "eu-west-1+7", id="a name that ends in a number"),
    ],
)
def test_a_level_is_called_after_its_queue(queue: str, priority: int, name: str) -> None:
    assert priorities.level(queue, priority) == name


@given(queues, st.integers(-100, 100).filter(bool))
def test_a_level_comes_apart_as_it_was_put_together(queue: str, priority: int) -> None:
    assert priorities.split(priorities.level(queue, priority)) == (queue, priority)


@given(queues.filter(lambda queue: not queue.startswith(":")), st.integers(-100, 100).filter(bool))
def test_a_level_of_a_stored_name_is_the_stored_name_of_the_level(queue: str, priority: int) -> None:
    for name in (queue, PlainName(queue)):
        level = priorities.level(name, priority)
        assert names.to_stored(level) == priorities.level(names.to_stored(name), priority)


def test_a_plain_name_has_plain_levels_and_stays_plain() -> None:
    level = priorities.level(PlainName("mail"), 5)
    assert isinstance(level, PlainName)
    assert isinstance(priorities.split(level)[0], PlainName)
    assert not isinstance(priorities.level("mail", 5), PlainName)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mail", id="no number"),
        pytest.param("mail+0", id="zero is the queue itself"),
        pytest.param("mail+010", id="a zero in front"),
        pytest.param("mail-101", id="out of range"),
        pytest.param("mail+1000", id="too long"),
        pytest.param("mail+5 ", id="not at the end"),
        pytest.param("mail+\u0665", id="digits of another script"),
        pytest.param("+5", id="no queue"),
        pytest.param(":+5", id="no queue, stored"),
        pytest.param("", id="no name"),
    ],
)
def test_what_is_no_level_is_a_queue_of_its_own(name: str) -> None:
    assert priorities.split(name) == (name, 0)


@pytest.mark.parametrize("priority", [101, -101, 1.0, True, "5", None])
def test_a_priority_is_a_whole_number_from_100_down_to_minus_100(priority: object) -> None:
    with pytest.raises(ValueError, match=r"from -100 to 100, not "):
        priorities.level("mail", priority)  # type: ignore[arg-type]


def test_the_empty_name_has_no_levels() -> None:
    with pytest.raises(ValueError, match="has no name to put 5 behind"):
        priorities.level(PlainName(""), 5)
    assert priorities.level(PlainName(""), 0) == ""


def test_the_levels_of_a_queue_go_from_high_to_low() -> None:
    levels = priorities.levels("mail")
    assert levels[0] == "mail+100"
    assert levels[100] == "mail"
    assert levels[-1] == "mail-100"
    assert len(set(levels)) == 201
