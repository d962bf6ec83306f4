"""What a worker process writes into shared memory, and its supervisor reads there."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian import PlainName, names
from django_proletarian.retry import GaveUp, LeftInQueue, RetryAfter, Succeeded, Verdict
from django_proletarian.slots import JobInSlot, Slots

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_a_slot_shows_the_job_until_it_is_left() -> None:
    slots = Slots.private(threads=3)
    slot = slots.slot(2)
    assert slots.running == []

    slot.enter(str(ID), 4, "shop/mail", PlainName("send"), since=1000.5)
    expected = JobInSlot(thread=2, job_id=ID, attempts=4, since=1000.5, queue=":shop/mail", job_type="send")
    assert slots.running == [expected]

    slot.leave(Succeeded())
    assert slots.running == []


def test_a_slot_tells_what_a_leased_job_s_row_had_before() -> None:
    slots = Slots.private(threads=1)
    slot = slots.slot(1)
    slot.enter(str(ID), 0, "a", "b", since=1.0)
    slot.limit(7.5)
    slot.lease(1764691200.123456)
    [job] = slots.running
    assert (job.leased_from, job.limit_at) == (1764691200.123456, 7.5)
    slot.leave()
    slot.enter(str(ID), 0, "a", "b", since=1.0)
    assert [job.leased_from for job in slots.running] == [None]


def test_the_reader_sees_what_a_writer_of_the_same_memory_wrote() -> None:
    memory = bytearray(Slots.size(2))
    Slots(memory, 2).slot(1).enter(str(ID), 0, "a", "b", since=1.0)
    assert [job.job_id for job in Slots(memory, 2).running] == [ID]


def test_slots_are_apart_from_one_another() -> None:
    slots = Slots.private(threads=2)
    jobs = [UUID(int=number) for number in (1, 2, 3)]
    for slot, job_id in zip([slots.slot(1), slots.slot(2), slots.settlers], jobs, strict=True):
        slot.enter(str(job_id), 2**31 - 1, "q" * 100, "t" * 200, since=2.0**40)
    assert [job.job_id for job in slots.running] == jobs[:2]
    assert slots.settling == jobs[2]
    assert slots.is_busy
    slots.slot(2).leave()
    assert [job.job_id for job in slots.running] == jobs[:1]
    assert slots.settling == jobs[2]
    assert not slots.is_busy


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        (Succeeded(), (1, 0)),
        (RetryAfter(timedelta(0), 1), (0, 1)),
        (GaveUp(None), (0, 1)),
        (LeftInQueue(), (0, 0)),
        (None, (0, 0)),
    ],
)
def test_leaving_counts_what_became_of_the_attempt(verdict: Verdict | None, counts: tuple[int, int]) -> None:
    slots = Slots.private(threads=2)
    slots.slot(2).leave(verdict)
    assert slots.counts == counts


def test_counts_of_all_threads_are_added() -> None:
    slots = Slots.private(threads=2)
    one, other = slots.slot(1), slots.slot(2)
    for slot in (one, other, other):
        slot.enter(str(ID), 0, "a", "b", since=1.0)
        slot.leave(Succeeded())
    assert slots.counts == (3, 0)


def test_a_process_is_busy_while_none_of_its_threads_could_poll() -> None:
    slots = Slots.private(threads=2)
    slots.slot(1).enter(str(ID), 0, "a", "b", since=1.0)
    assert not slots.is_busy
    slots.slot(2).end()
    assert slots.is_busy
    assert [job.thread for job in slots.running] == [1]


def test_the_time_of_the_last_poll_is_0_until_there_is_one() -> None:
    slots = Slots.private(threads=1)
    assert slots.polled_at == 0
    slots.note_poll(12345.25)
    assert slots.polled_at == 12345.25


@given(queue=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_a_name_of_any_length_is_shown_up_to_a_whole_character(queue: str) -> None:
    slots = Slots.private(threads=1)
    slots.slot(1).enter(str(ID), 0, queue, queue, since=1.0)
    [job] = slots.running
    stored = names.to_stored(queue)
    assert stored.startswith(job.queue)
    assert stored.startswith(job.job_type)
    assert len(job.queue.encode()) > 60 or job.queue == stored
    assert len(job.job_type.encode()) > 124 or job.job_type == stored
