"""Which test stands behind which cell of README's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

CLAIMS: dict[tuple[str, str], str] = {}


def claim(row: str, column: str, says: str) -> Callable[[F], F]:
    """The decorated test shows what the table says in this cell; one that shows more about it is left bare."""

    def register(test: F) -> F:
        assert (row, column) not in CLAIMS, f"two tests claim {row}, {column}"
        CLAIMS[row, column] = says
        return test

    return register
