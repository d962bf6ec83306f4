"""Bars over time for an inline SVG: successes grow up from a line, failures down, so that colour is never all there is.

Pure: from numbers to places in the drawing, as texts, which no language's decimal comma gets into. Called by
`overview_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 480, 64  # of the drawing, in units of its own; the page stretches it
LINE = 48  # where it is divided, from above
LEAST = 2.0  # height of a bar that is not zero: one failure beside a thousand successes must be seen
GAP = 0.2  # of a bar's width


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A rectangle of the drawing."""

    x: str
    y: str
    width: str
    height: str
    failed: bool


def bars(succeeded: Sequence[int], failed: Sequence[int]) -> tuple[Bar, ...]:
    """The bars of both, one for each number that is not zero, in the order of time.

    Both directions have a scale of their own if failures are too many for theirs: what is below says how bad it is,
    and is not to be read against what is above.
    """
    step = WIDTH / max(1, len(succeeded))
    most_succeeded, most_failed = max(succeeded, default=0), max(failed, default=0)
    unit = LINE / max(1, most_succeeded)
    unit_below = min(unit, (HEIGHT - LINE) / max(1, most_failed))
    drawn: list[Bar] = []
    for number, (good, bad) in enumerate(zip(succeeded, failed, strict=True)):
        x = number * step + step * GAP / 2
        if good:
            height = max(LEAST, good * unit)
            drawn.append(_bar(x, LINE - height, step, height, failed=False))
        if bad:
            drawn.append(_bar(x, LINE, step, max(LEAST, bad * unit_below), failed=True))
    return tuple(drawn)


def _bar(x: float, y: float, step: float, height: float, *, failed: bool) -> Bar:
    width = step * (1 - GAP)
    return Bar(x=f"{x:.2f}", y=f"{y:.2f}", width=f"{width:.2f}", height=f"{height:.2f}", failed=failed)
