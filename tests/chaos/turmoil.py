"""Does what the plan says to the world, each event at its time or as soon after it as the machine can."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable

import psycopg

from tests.chaos.plan import Event, Kind
from tests.chaos.world import Supervisor, World

LATE_AT_MOST = 0.5  # seconds


class Turmoil:
    """One course of events, done in the thread that calls `run`."""

    def __init__(self, world: World, say: Callable[[str], object]) -> None:
        self.done: Counter[Kind] = Counter()
        self.missed: Counter[Kind] = Counter()  # events that found nothing to happen to
        self.children_killed: list[int] = []  # process ids
        self.backends_terminated = 0
        self.started_again = 0  # supervisors
        self._world = world
        self._say = say
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []  # due, number, what
        self._numbers = itertools.count()
        self._began = time.monotonic()

    def run(self, events: tuple[Event, ...]) -> None:
        """Do all of them, and what ends them; supervisors that end meanwhile are started again."""
        self._began = time.monotonic()
        for event in events:
            self._at(event.at, lambda event=event: self._happen(event))
        while self._agenda:
            due, _, act = heapq.heappop(self._agenda)
            while time.monotonic() - self._began < due:
                self.revive()
                time.sleep(min(0.1, max(0, self._began + due - time.monotonic())))
            # A slow machine must not get in a heap what was to come one after the other: all the rest comes later too.
            self._began = max(self._began, time.monotonic() - due - LATE_AT_MOST)
            act()
        self.revive()

    def _at(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (seconds, next(self._numbers), act))

    def _in(self, seconds: float, act: Callable[[], object]) -> None:
        self._at(time.monotonic() - self._began + seconds, act)

    def revive(self) -> None:
        """Start supervisors again that have ended."""
        self.started_again += sum(supervisor.revive() for supervisor in self._world.supervisors.values())

    def _happen(self, event: Event) -> None:
        what = self._do(event)
        (self.missed if what is None else self.done)[event.kind] += 1
        now = time.monotonic() - self._began
        self._say(f"{now:6.1f} s  {event.kind}: {what or 'there was nothing to happen to'}")

    def _do(self, event: Event) -> str | None:
        """Do it; return what was done, or None if that was not possible."""
        match event.kind:
            case Kind.RESTART_SERVER_FAST | Kind.RESTART_SERVER_IMMEDIATE:
                if not self._world.server.runs:
                    return None
                self._world.server.stop("fast" if event.kind is Kind.RESTART_SERVER_FAST else "immediate")
                self._in(event.seconds, self._world.server.start)
                return "stopped"
            case Kind.RESTART_POOLER:
                return self._restart_pooler(event.seconds)
            case Kind.TERMINATE_BACKENDS:
                return self._terminate(event.number)
            case _:
                return self._do_to_workers(event)

    def _do_to_workers(self, event: Event) -> str | None:
        supervisor = self._world.supervisors[event.supervisor]
        # Until it has children it may not be ready for a signal yet, and would just end.
        children = supervisor.children() if supervisor.runs else []
        if not children:
            return None
        try:
            return self._do_to(supervisor, children[event.number % len(children)], event)
        except ProcessLookupError:
            return None  # it has ended since it was looked for

    def _do_to(self, supervisor: Supervisor, child: int, event: Event) -> str:
        match event.kind:
            case Kind.KILL_CHILD:
                os.kill(child, signal.SIGKILL)
                self.children_killed.append(child)
                return f"{child} of {supervisor.name}"
            case Kind.PAUSE_CHILD:
                return self._pause(child, event.seconds)
            case Kind.PAUSE_SUPERVISOR:
                return self._pause(supervisor.pid, event.seconds)
            case Kind.KILL_SUPERVISOR:
                supervisor.kill()
            case Kind.HANG_UP:
                supervisor.send(signal.SIGHUP)
        return f"{supervisor.pid}, {supervisor.name}"

    def _restart_pooler(self, seconds: float) -> str | None:
        pooler = self._world.pooler
        if pooler is None or not pooler.runs:
            return None
        pooler.kill()
        self._in(seconds, pooler.start)
        return "killed"

    def _pause(self, pid: int, seconds: float) -> str:
        os.kill(pid, signal.SIGSTOP)
        self._in(seconds, lambda: self._go_on(pid))
        return f"{pid} for {seconds:.1f} s"

    def _go_on(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return  # killed meanwhile

    def _terminate(self, number: int) -> str | None:
        try:
            backends = self._world.backends()
            chosen = backends[number % len(backends) :][: 1 + number % 3] if backends else []
            for backend in chosen:
                self._world.terminate(backend)
        except psycopg.OperationalError:
            return None  # the server is down
        self.backends_terminated += len(chosen)
        return ", ".join(map(str, chosen)) or None
