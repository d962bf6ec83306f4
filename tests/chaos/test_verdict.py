"""The chaos suite's verdict: it finds nothing where all is well, and each thing that may go wrong where it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.chaos.evidence import Evidence, Row
from tests.chaos.plan import Chunk, JobType, Plan, PlannedJob
from tests.chaos.project.diary import Line, Word
from tests.chaos.project.work import ALWAYS, Work
from tests.chaos.verdict import FAILURE, SUCCESS, faults

ATOMIC, PLAIN, RETRIED, HOPELESS, POISON, STRANGER = (UUID(int=number) for number in range(6))


def planned(job_id: UUID, job_type: JobType, failures: int = 0) -> PlannedJob:
    return PlannedJob(job_id=job_id, job_type=job_type, work=Work(0, failures), due_in=0)


PLAN = Plan(
    seed=0,
    seconds=60,
    chunks=(
        Chunk(
            number=0,
            at=0,
            rolled_back=False,
            jobs=(
                planned(ATOMIC, "chaos/atomic"),
                planned(PLAIN, "chaos/plain"),
                planned(RETRIED, "chaos/plain", 1),
                planned(HOPELESS, "chaos/atomic", ALWAYS),
                planned(POISON, "chaos/poison", ALWAYS),
            ),
        ),
        Chunk(number=1, at=1, rolled_back=True, jobs=(planned(STRANGER, "chaos/atomic"),)),
    ),
    events=(),
)


def line(word: Word, job_id: UUID, attempt: int, error: str = "", process: int = 7) -> Line:
    return Line(word, job_id, attempt, error, process)


def failed(job_id: UUID, attempt: int, error: str = "PlannedFailure") -> list[Line]:
    return [
        line("began", job_id, attempt),
        line("raised", job_id, attempt, error),
        line("counted", job_id, attempt, error),
    ]


def crashed(job_id: UUID, attempt: int, process: int) -> list[Line]:
    return [line("began", job_id, attempt, process=process), line("counted", job_id, attempt, "WorkerCrashed")]


def succeeded(job_id: UUID, attempt: int) -> list[Line]:
    return [line("began", job_id, attempt), line("returned", job_id, attempt)]


DIARY = [
    *succeeded(ATOMIC, 1),
    line("committed", ATOMIC, 1),
    *succeeded(PLAIN, 1),
    *failed(RETRIED, 1),
    *succeeded(RETRIED, 2),
    *(written for attempt in (1, 2, 3) for written in failed(HOPELESS, attempt)),
    line("gave-up", HOPELESS, 3, "PlannedFailure"),
    *(written for attempt in (1, 2, 3) for written in crashed(POISON, attempt, process=100 + attempt)),
    line("gave-up", POISON, 3, "WorkerCrashed"),
]
WELL = Evidence(
    queued={},
    archived={
        ATOMIC: Row(status=SUCCESS, attempts=1),
        PLAIN: Row(status=SUCCESS, attempts=1),
        RETRIED: Row(status=SUCCESS, attempts=2),
        HOPELESS: Row(status=FAILURE, attempts=3),
        POISON: Row(status=FAILURE, attempts=3),
    },
    ledger=Counter({ATOMIC: 1}),
    effects={PLAIN: 1, RETRIED: 1},
    chunks=frozenset({0}),
    diary=DIARY,
    connections=[],
    processes=[],
    untold=frozenset(),
    mishaps=[],
    killed=frozenset({9}),
    threads=3,
)


def archived(job_id: UUID, status: str, attempts: int) -> dict[str, Any]:
    """The change that one row of the archive is."""
    return {"archived": {**WELL.archived, job_id: Row(status=status, attempts=attempts)}}


def without(job_id: UUID) -> dict[UUID, Row]:
    return {other: row for other, row in WELL.archived.items() if other != job_id}


def texts(**changes: Any) -> list[str]:
    """The faults of evidence that is all well but for `changes`."""
    return [fault.text for fault in faults(PLAN, replace(WELL, **changes))]


def test_where_all_is_well_there_is_no_fault() -> None:
    assert texts() == []


# A job that was killed in process 9, and then came to its end.
KILLED_ONCE = [*DIARY, *crashed(PLAIN, 1, process=9), *succeeded(PLAIN, 2)]
GIVEN_UP = [
    *(written for written in DIARY if written.job_id != PLAIN),
    *(written for attempt in (1, 2, 3) for written in crashed(PLAIN, attempt, process=9)),
    line("gave-up", PLAIN, 3, "WorkerCrashed"),
]


@pytest.mark.parametrize(
    "changes",
    [
        {"diary": KILLED_ONCE, "effects": {**WELL.effects, PLAIN: 2}, **archived(PLAIN, SUCCESS, 2)},
        # It was killed after it had written.
        {"diary": GIVEN_UP, "effects": {RETRIED: 1, PLAIN: 1}, **archived(PLAIN, FAILURE, 3)},
        {"diary": GIVEN_UP, "effects": {RETRIED: 1}, **archived(PLAIN, FAILURE, 3)},
        # The handler's own connection died, which counts; the claim's died, which does not.
        {
            "diary": [*DIARY, *failed(ATOMIC, 1, "OperationalError"), *succeeded(ATOMIC, 2)],
            **archived(ATOMIC, SUCCESS, 2),
        },
        {"diary": [line("began", ATOMIC, 1), line("raised", ATOMIC, 1, "OperationalError"), *DIARY]},
        # The process that settled the crash crashed too.
        {
            "untold": {ATOMIC},
            "diary": [line("began", ATOMIC, 1), *DIARY, *succeeded(ATOMIC, 2)],
            **archived(ATOMIC, SUCCESS, 2),
        },
        {"untold": {PLAIN}, "diary": GIVEN_UP[:-2], "effects": {RETRIED: 1}, **archived(PLAIN, FAILURE, 3)},
    ],
)
def test_what_kills_and_outages_do_is_no_fault(changes: dict[str, Any]) -> None:
    assert texts(**changes) == []


def test_a_lost_job() -> None:
    assert texts(archived=without(PLAIN)) == ["it is lost: neither in the queue nor in the archive"]


def test_a_job_that_is_left() -> None:
    assert texts(archived=without(PLAIN), queued={PLAIN: 0}) == ["it is in the queue still"]


def test_a_job_in_both_tables() -> None:
    assert texts(queued={PLAIN: 0}) == ["it is in the queue and in the archive"]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"queued": {STRANGER: 0}}, "in the queue"),
        (archived(STRANGER, SUCCESS, 1), "archived"),
        ({"ledger": Counter({ATOMIC: 1, STRANGER: 1})}, "in the ledger"),
        ({"effects": {**WELL.effects, STRANGER: 1}}, "among the effects"),
        ({"diary": [*DIARY, line("began", STRANGER, 1)]}, "in the diary"),
    ],
)
def test_a_job_whose_transaction_was_rolled_back(changes: dict[str, Any], place: str) -> None:
    assert texts(**changes) == [f"a job that was never enqueued is {place}"]


@pytest.mark.parametrize("chunks", [set(), {0, 1}])
def test_a_transaction_that_is_missing_or_too_many(chunks: set[int]) -> None:
    [text] = texts(chunks=frozenset(chunks))
    assert text.startswith("transactions missing: ")


@pytest.mark.parametrize(
    ("job_id", "rows", "wanted"), [(ATOMIC, 0, 1), (ATOMIC, 2, 1), (HOPELESS, 1, 0), (PLAIN, 1, 0)]
)
def test_an_atomic_job_that_was_not_done_as_often_as_it_must(job_id: UUID, rows: int, wanted: int) -> None:
    ledger = Counter({ATOMIC: 1})
    ledger[job_id] = rows
    assert texts(ledger=ledger) == [f"it has {rows} rows in the ledger instead of {wanted}"]


def test_a_plain_job_without_its_effect() -> None:
    assert texts(effects={RETRIED: 1}) == [
        "its effect is missing",
        "it has None runs, and its handler began 1 times and returned 1 times",
    ]


def test_a_plain_job_that_did_more_than_its_handler_was_run() -> None:
    assert texts(effects={**WELL.effects, PLAIN: 2}) == [
        "it has 2 runs, and its handler began 1 times and returned 1 times"
    ]


def test_an_on_commit_callback_that_ran_twice_or_without_a_commit() -> None:
    assert texts(diary=[*DIARY, line("committed", ATOMIC, 1)]) == ["its on_commit callback ran 2 times"]
    assert texts(diary=[*DIARY, line("committed", HOPELESS, 3)]) == ["its on_commit callback ran 1 times"]


@pytest.mark.parametrize(
    ("job_id", "status", "attempts", "diary", "text"),
    [
        (RETRIED, SUCCESS, 1, [*DIARY, *succeeded(RETRIED, 1)], "it is a success at attempt 1, where it had to fail"),
        (RETRIED, SUCCESS, 3, [*DIARY, *succeeded(RETRIED, 3)], "attempt 2 of 3 was counted without a reason"),
        (PLAIN, SUCCESS, 2, DIARY, "attempt 1 of 2 was counted without a reason"),
        (PLAIN, SUCCESS, 2, KILLED_ONCE[:-1], "it is a success at attempt 2, where its handler did not return"),
        (PLAIN, FAILURE, 1, DIARY, "it is a failure at attempt 1, where neither strategy nor callback gave it up"),
        (PLAIN, FAILURE, 1, DIARY, "it is a failure, and neither had to fail nor was given up after crashes"),
        (HOPELESS, FAILURE, 2, DIARY, "it is a failure after 2 attempts, and has 2 retries"),
        (POISON, FAILURE, 2, DIARY, "it killed its process at every attempt, and has 2 attempts"),
        (PLAIN, ":done", 1, DIARY, "its status is :done"),
    ],
)
def test_a_status_or_a_number_of_attempts_that_nothing_explains(
    job_id: UUID, status: str, attempts: int, diary: Sequence[Line], text: str
) -> None:
    assert text in texts(**archived(job_id, status, attempts), diary=diary)


def test_a_crash_that_was_counted_without_a_kill() -> None:
    changes = {"diary": KILLED_ONCE, "effects": {**WELL.effects, PLAIN: 2}, **archived(PLAIN, SUCCESS, 2)}
    assert texts(**changes, killed=frozenset({8})) == [
        "attempt 1 was counted as a crash, and ran in no process that was killed"
    ]


def test_more_crashes_than_the_killed_processes_had_jobs() -> None:
    assert texts(threads=0) == ["3 attempts were counted as crashes, and only 4 processes of 0 threads were killed"]


def test_an_error_that_no_handler_should_meet() -> None:
    diary = [line("began", PLAIN, 1), line("raised", PLAIN, 1, "TransactionManagementError"), *DIARY]
    assert texts(diary=diary) == ["its handler met an unexpected TransactionManagementError"]


def test_what_is_left_and_what_happened_to_supervisors_is_told() -> None:
    assert texts(connections=["direct-1"], processes=["77 python"], mishaps=["direct-1 ended by itself"]) == [
        "a connection is left: direct-1",
        "a process is left: 77 python",
        "direct-1 ended by itself",
    ]


# -- Leased jobs -----------------------------------------------------------------------------------------------------

LEASED = UUID(int=100)


def texts_of_leased(status: str, attempts: int, diary: list[Line], *, rows: int = 1, failures: int = 0) -> list[str]:
    """The faults where this became of one leased job, and all else is well."""
    chunk = replace(PLAN.chunks[0], jobs=(*PLAN.chunks[0].jobs, planned(LEASED, "chaos/leased", failures)))
    evidence = replace(
        WELL,
        **archived(LEASED, status, attempts),
        diary=[*DIARY, *diary],
        ledger=Counter({ATOMIC: 1, LEASED: rows}),
    )
    return [fault.text for fault in faults(replace(PLAN, chunks=(chunk, *PLAN.chunks[1:])), evidence)]


def test_a_leased_job_whose_first_lease_was_lost_is_done_once() -> None:
    lost = [line("began", LEASED, 1), line("raised", LEASED, 1, "LeaseLost")]
    assert texts_of_leased(SUCCESS, 1, succeeded(LEASED, 1)) == []
    assert texts_of_leased(SUCCESS, 2, [*lost, *succeeded(LEASED, 2)]) == []
    # The loser came back too, late; what counts is the attempt that the archive has.
    assert texts_of_leased(SUCCESS, 2, [*succeeded(LEASED, 1), *succeeded(LEASED, 2)]) == []


def test_a_leased_job_that_the_loser_archived_or_that_was_done_twice_is_found() -> None:
    assert texts_of_leased(SUCCESS, 2, succeeded(LEASED, 1)) == [
        "it is a success at attempt 2, where its handler did not return"
    ]
    for rows in (0, 2):
        assert texts_of_leased(SUCCESS, 1, succeeded(LEASED, 1), rows=rows) == [
            f"it has {rows} rows in the ledger instead of 1"
        ]


def test_a_leased_job_that_is_given_up_was_done_at_most_once() -> None:
    crashes = [
        *(written for attempt in (1, 2, 3) for written in crashed(LEASED, attempt, process=9)),
        line("gave-up", LEASED, 3, "WorkerCrashed"),
    ]
    assert texts_of_leased(FAILURE, 3, crashes, rows=0) == texts_of_leased(FAILURE, 3, crashes, rows=1) == []
    assert texts_of_leased(FAILURE, 3, crashes, rows=2) == ["it has 2 rows in the ledger instead of 0"]
