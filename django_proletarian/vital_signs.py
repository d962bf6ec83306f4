"""Shows that a worker is alive, to whoever asks from outside: the heartbeat file, and systemd.

Called about once a second by the supervisor, or by a thread of the one process where there is none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from django_proletarian import heartbeat, sd_notify
from django_proletarian import log as events
from django_proletarian.heartbeat import DEFAULT_MAX_AGE, Heartbeat, Pulse
from django_proletarian.log import EventLog
from django_proletarian.slots import Slots

BEAT = 1.0  # seconds


class VitalSigns:
    """What one worker shows. `path` None writes no file. Used by one thread."""

    def __init__(self, path: Path | None, log: EventLog) -> None:
        self._path = path
        self._log = log
        self._beats_at = 0.0  # time.monotonic() of the next beat, and below of the next word to the watchdog
        self._watchdog_at = 0.0
        self._watchdog_interval = sd_notify.watchdog_interval()
        self._is_ready = False
        self._has_complained = False
        self._warn_of_another_worker()

    def show(self, processes: Sequence[tuple[int | None, float]]) -> None:
        """Show the worker's processes, if it is time to: pid, and time.monotonic() of the last poll, 0 for none."""
        now, monotonic = time.time(), time.monotonic()
        if monotonic < self._beats_at:
            return
        self._beats_at = monotonic + BEAT
        pulses = tuple(
            Pulse(pid=pid, polled_at=now - (monotonic - polled_at) if polled_at else None)
            for pid, polled_at in processes
        )
        beat = Heartbeat(pid=os.getpid(), written_at=now, processes=pulses)
        self._write(beat)
        self._tell_systemd(beat, monotonic)

    def stopping(self) -> None:
        """Tell systemd that the worker was asked to stop."""
        sd_notify.notify(sd_notify.STOPPING)

    def end(self) -> None:
        """Remove the file: there is no worker any more."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _write(self, beat: Heartbeat) -> None:
        if self._path is None:
            return
        try:
            heartbeat.write(self._path, beat)
            self._has_complained = False
        except OSError as error:
            # A full disk is no reason to stop working.
            if not self._has_complained:
                self._log(events.HEARTBEAT_FILE_ERROR, error=error, heartbeat_file=self._path)
            self._has_complained = True

    def _tell_systemd(self, beat: Heartbeat, monotonic: float) -> None:
        if not self._is_ready and all(pulse.polled_at is not None for pulse in beat.processes):
            self._is_ready = True
            sd_notify.notify(sd_notify.READY)
        if self._watchdog_interval is None or monotonic < self._watchdog_at:
            return
        if heartbeat.problem(beat, beat.written_at, DEFAULT_MAX_AGE) is None:
            self._watchdog_at = monotonic + self._watchdog_interval - BEAT
            sd_notify.notify(sd_notify.WATCHDOG)

    def _warn_of_another_worker(self) -> None:
        if self._path is None or os.name == "nt":
            return
        with suppress(OSError, ValueError):
            other = heartbeat.read(self._path)
            if other.pid != os.getpid() and 0 <= time.time() - other.written_at < 3 * BEAT:
                os.kill(other.pid, 0)  # an OSError if there is no such process
                self._log(events.HEARTBEAT_FILE_SHARED, heartbeat_file=self._path, other_pid=other.pid)


class LastPoll:
    """When a worker process last polled, or had no thread left to poll with; in time.monotonic()'s seconds."""

    def __init__(self) -> None:
        self.at = 0.0  # 0 for never

    def look(self, slots: Slots) -> float:
        """Bring it up to date, and return it."""
        busy_at = time.monotonic() if slots.is_busy else 0.0
        self.at = max(self.at, slots.polled_at, busy_at)
        return self.at
