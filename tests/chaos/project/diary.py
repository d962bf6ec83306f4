"""What the handlers and callbacks of all workers did, in one file that no outage of the database takes away.

Handlers write it, one line at a time; the driver reads it when all is over. A line that was written stays, whatever
kills the process after it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from uuid import UUID

from django_proletarian import Job

# A handler began, came back or raised; the strategy was asked, so this attempt counts; the failed-job callback was
# called; the on_commit callback was called.
Word = Literal["began", "returned", "raised", "counted", "gave-up", "committed"]
WORDS = get_args(Word)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `attempt` is the attempt's number, `error` the exception's class, or empty."""

    word: Word
    job_id: UUID
    attempt: int
    error: str
    process: int


def write(word: Word, job: Job, error: BaseException | None = None) -> None:
    """Write one line."""
    line = f"{word} {job.job_id} {job.attempts} {type(error).__name__ if error is not None else '-'} {os.getpid()}\n"
    # In one write to the end of the file: lines of several processes do not mix.
    os.write(_file(), line.encode())


@contextmanager
def told(job: Job) -> Iterator[None]:
    """Write how a handler begins and ends."""
    write("began", job)
    try:
        yield
    except BaseException as error:
        write("raised", job, error)
        raise
    write("returned", job)


def read(path: Path) -> list[Line]:
    """All lines so far."""
    lines = []
    for text in path.read_text().splitlines():
        word, job_id, attempt, error, process = text.split(" ")
        assert word in WORDS, text
        lines.append(Line(word, UUID(job_id), int(attempt), "" if error == "-" else error, int(process)))
    return lines


@functools.cache
def _file() -> int:
    return os.open(os.environ["CHAOS_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
