"""The file that shows, from outside and without a database, whether a worker is alive.

Written about once a second by the supervisor, or by the one process where there is none; read by `health`. The rule is
pure; times are seconds since 1970, for the reader is another program and may come after a reboot.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DEFAULT_MAX_AGE = 30.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """One worker process, or the place of one that is being started again."""

    pid: int | None  # None while none runs
    polled_at: float | None  # when it last polled with success, or all its threads were busy; None if it never did


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What the file says."""

    pid: int  # of the process that wrote it
    written_at: float
    processes: tuple[Pulse, ...]


def problem(beat: Heartbeat, now: float, max_age: float) -> str | None:
    """Why the worker is not healthy, in one line; None if it is.

    Every process must have polled within `max_age` seconds. One whose threads all run jobs has no need to.
    """
    age = now - beat.written_at
    if age > max_age:
        return f"The worker (pid {beat.pid}) last wrote its heartbeat {age:.0f} s ago: it was killed, or hangs."
    for number, pulse in enumerate(beat.processes, 1):
        who = f"Worker process {number} ({f'pid {pulse.pid}' if pulse.pid is not None else 'not running'})"
        if pulse.polled_at is None:
            return f"{who} has not polled yet."
        if now - pulse.polled_at > max_age:
            return f"{who} last polled with success {now - pulse.polled_at:.0f} s ago; {max_age:g} s are allowed."
    return None


def write(path: Path, beat: Heartbeat) -> None:
    """Put the file in place as a whole, so that no reader sees half of it. Raises OSError."""
    # In the same directory, for a rename between file systems is a copy. mkstemp follows no link that others have laid.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with open(handle, "w") as file:
            json.dump(asdict(beat), file)
        # Whoever may look into the directory may ask, a probe that runs as another user among them.
        os.chmod(temporary, 0o644)  # it says nothing but process ids and times
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def read(path: Path) -> Heartbeat:
    """What the file says. Raises FileNotFoundError, another OSError, or ValueError if it is no heartbeat."""
    try:
        found = json.loads(path.read_text())
        processes = tuple(Pulse(**pulse) for pulse in found["processes"])
        return Heartbeat(pid=found["pid"], written_at=found["written_at"], processes=processes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a worker's heartbeat.") from error


def default_path(project: Sequence[object]) -> Path:
    """Where the heartbeat of a project is, for all its commands run by one user. `project` tells it from others."""
    digest = hashlib.blake2b(repr(project).encode(), digest_size=6).hexdigest()
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return Path(tempfile.gettempdir()) / f"proletarian-{user}-{digest}.heartbeat"
