"""How far a job has come, as its handler told: a value on its way from the handler to those who look on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MOST_MESSAGE = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a handler said last."""

    done: float
    total: float | None = None  # None if nobody knows
    message: str = ""

    @classmethod
    def of(cls, done: object, total: object = None, message: object = "") -> Progress:
        """Checked: a handler may give anything. Raises ValueError."""
        for name, value in (("done", done), ("total", total)):
            if value is None and name == "total":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}, not a number. For example: job.progress(3, 10).")
        text = str(message).replace("\x00", "").encode(errors="replace").decode()
        return cls(done=done, total=total, message=text[:MOST_MESSAGE])  # type: ignore[arg-type] # checked above

    @property
    def percent(self) -> int | None:
        """Of the whole, from 0 to 100; None where the whole is not known."""
        if not self.total:
            return None
        return max(0, min(100, int(100 * self.done / self.total)))

    def __str__(self) -> str:
        whole = "" if self.total is None else f" of {self.total:,g}" if self.total % 1 else f" of {int(self.total):,}"
        part = f"{self.done:,g}" if self.done % 1 else f"{int(self.done):,}"
        percent = "" if self.percent is None else f" ({self.percent} %)"
        return f"{part}{whole}{percent}" + (f": {self.message}" if self.message else "")

    def as_json(self) -> dict[str, Any]:
        """As a worker's row has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any] | None) -> Progress | None:
        """Out of a worker's row; None where there is none."""
        return None if told is None else cls(done=told["done"], total=told["total"], message=told["message"])
