"""`manage.py proletarian_worker`: options, signals, exit code. The work is in `worker`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload
from django.utils.connection import ConnectionDoesNotExist

from django_proletarian import QueueWorker, names, priorities
from django_proletarian.api import worker_options
from django_proletarian.conf import heartbeat_path, settings, worker_processes
from django_proletarian.handlers import registered
from django_proletarian.log import EventLog, log_to_stderr
from django_proletarian.names import shown
from django_proletarian.outage import explained
from django_proletarian.suggestions import did_you_mean
from django_proletarian.vital_signs import LastPoll, VitalSigns
from django_proletarian.worker_process import exit_now, keep_house, report, report_on_signal

BY_ITSELF = "the worker ended by itself"
WORKER_OPTIONS = (
    "queues",
    "database",
    "threads",
    "polling_interval",
    "batch_size",
    "shutdown_timeout",
    "worker_id",
    "drain",
    "max_jobs",
)
PROCESS_OPTIONS = ("processes", "start_method", "max_jobs_per_process", "max_memory_per_process")


class Command(BaseCommand):
    help = "Runs the jobs of one or more queues until it is told to stop (SIGTERM or Ctrl-C; twice to stop at once)."
    is_from_shell = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--queue",
            action="append",
            dest="queues",
            metavar="NAME",
            help="Queue to work on; repeat for several, drained in the order given. Default: the QUEUES setting.",
        )
        add("--threads", type=int, help="Jobs to run at once. Default: the THREADS setting, 1.")
        add(
            "--polling-interval",
            type=float,
            metavar="SECONDS",
            help="How long an idle worker waits between looks. Default: the POLLING_INTERVAL setting, 0.1.",
        )
        add(
            "--batch-size",
            type=int,
            metavar="N",
            help="Jobs that a thread claims and settles in one transaction. Default: the BATCH_SIZE setting, 1.",
        )
        add("--database", metavar="ALIAS", help="Database that holds the queue. Default: what the routers say.")
        add(
            "--shutdown-timeout",
            type=float,
            metavar="SECONDS",
            help="How long running jobs may take after a stop was asked. Default: the SHUTDOWN_TIMEOUT setting, 10.",
        )
        add("--worker-id", metavar="ID", help="Name in logs and in the server's list of connections.")
        add("--drain", action="store_true", help="Run what is due, then exit.")
        add("--max-jobs", type=int, metavar="N", help="Exit after N jobs.")
        add("--reload", action="store_true", help="Start anew when code changes. For development.")
        add("--processes", type=int, metavar="N", help="Worker processes. Default: the PROCESSES setting, 1.")
        add(
            "--max-jobs-per-process",
            type=int,
            metavar="N",
            help="Replace a worker process after N jobs. Default: the MAX_JOBS_PER_PROCESS setting, never.",
        )
        add(
            "--max-memory-per-process",
            type=int,
            metavar="MIB",
            help="Replace a worker process that has grown so big. Default: the MAX_MEMORY_PER_PROCESS setting, never.",
        )
        add(
            "--start-method",
            metavar="METHOD",
            help="How worker processes start: spawn, fork or forkserver. Default: the START_METHOD setting, spawn.",
        )
        add(
            "--heartbeat-file",
            metavar="PATH",
            help="What proletarian_health looks at. Default: the HEARTBEAT_FILE setting, one for each project.",
        )
        add(
            "--no-supervisor",
            action="store_false",
            dest="supervisor",
            default=None,
            help="Run the worker in this one process. So it is on Windows, and with --reload.",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        # A program that calls the command, as tests do, has handlers and settings that other processes would not have.
        self.is_from_shell = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        supervisor = options.pop("supervisor")
        if supervisor is None:
            supervisor = self.is_from_shell and os.name != "nt" and not options["reload"]
        if supervisor:
            self.supervise(options)
        elif (options["processes"] or 1) > 1:
            raise CommandError("More than one process needs the supervisor: leave out --no-supervisor and --reload.")
        elif options["reload"]:
            # Django's reloader runs this in a thread of a child process, and keeps the signals for itself.
            autoreload.run_with_reloader(self.run, options, signals=False)
        else:
            self.run(options, signals=True)

    def supervise(self, options: dict[str, Any]) -> None:
        """Run worker processes to their end. Raises CommandError if an error ended them; exits 1 if jobs were left."""
        from django_proletarian.supervisor import Plan, Supervisor, WorkerFailed  # noqa: PLC0415 # not for Windows

        log_to_stderr(options["verbosity"])
        given = given_options(options)
        self.warn_of_misspelt_queues(given["queues"])
        with told_as_command_errors():
            plan = Plan(
                given=given,
                worker=worker_options(**given),
                verbosity=options["verbosity"],
                heartbeat_file=heartbeat_path(options["heartbeat_file"]),
                **worker_processes(**{key: options[key] for key in PROCESS_OPTIONS}),
            )
        try:
            code = Supervisor(plan).run()
        except WorkerFailed as error:
            raise CommandError(str(error)) from error
        if code:
            sys.exit(code)

    def run(self, options: dict[str, Any], *, signals: bool) -> None:
        """Run a worker to its end. Raises CommandError if an error ended it; exits 1 if running jobs had to be left."""
        ends: SimpleQueue[str] = SimpleQueue()  # its put() may be called from a signal handler
        # First of all: a signal while the worker starts must stop it too.
        with stopping_on_signals(ends) if signals else nullcontext():
            log_to_stderr(options["verbosity"])
            given = given_options(options)
            self.warn_of_misspelt_queues(given["queues"])
            with told_as_command_errors():
                worker = QueueWorker(worker_options(**given))
                path = heartbeat_path(options["heartbeat_file"])
            with showing_vital_signs(worker, path) if self.is_from_shell else nullcontext() as signs:
                worker.start(on_end=lambda: ends.put(BY_ITSELF))
                if ends.get() == BY_ITSELF:
                    worker.join()
                else:
                    if signs is not None:
                        signs.stopping()
                    if not worker.stop():
                        exit_now(1)
        if worker.error is not None:
            text = explained(worker.error, worker.options.database, worker.options.tables)
            raise CommandError(text) from worker.error

    def warn_of_misspelt_queues(self, queues: list[str] | None) -> None:
        """Warn of queues that no handler and no setting names, if one that is named is near; others are Clojure's."""
        known = {*settings().queues, settings().queue, *(handler.queue for handler in registered() if handler.queue)}
        for queue in queues or ():
            meant = did_you_mean(queue, known) if known.isdisjoint((queue, priorities.split(queue)[0])) else ""
            if meant:
                self.stderr.write(self.style.WARNING(f"No handler and no setting names queue {shown(queue)}. {meant}"))


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """What the command line says about the worker itself: plain values, which can be sent to another process."""
    given = {key: options[key] for key in WORKER_OPTIONS}
    if given["queues"] is not None:
        given["queues"] = [names.parse(queue) for queue in given["queues"]]
    return given


@contextmanager
def told_as_command_errors() -> Iterator[None]:
    """Tell of options that can't be in one line, without a traceback."""
    try:
        yield
    except (ValueError, ConnectionDoesNotExist) as error:
        raise CommandError(str(error)) from error


@contextmanager
def showing_vital_signs(worker: QueueWorker, path: Path | None) -> Iterator[VitalSigns]:
    """Do for a worker without a supervisor what that does for its processes: heartbeat, systemd, SIGUSR1."""
    log = EventLog(queue_worker_id=worker.options.worker_id)
    signs, last_poll, ended = VitalSigns(path, log), LastPoll(), threading.Event()
    asked: SimpleQueue[None] = SimpleQueue()

    def show() -> None:
        if not ended.is_set():
            signs.show([(os.getpid(), last_poll.look(worker.slots))])

    if hasattr(signal, "SIGUSR1") and threading.current_thread() is threading.main_thread():
        report_on_signal(asked)
    arguments = (asked, lambda: report(worker.slots, log), show)
    threading.Thread(target=keep_house, args=arguments, name="housekeeping", daemon=True).start()
    try:
        yield signs
    finally:
        ended.set()
        signs.end()


@contextmanager
def stopping_on_signals(ends: SimpleQueue[str]) -> Iterator[None]:
    """Put the name of the first SIGTERM or SIGINT into `ends`; the second does what it does by default: it kills."""
    if threading.current_thread() is not threading.main_thread():
        # A program that runs the command in a thread keeps its signals.
        yield
        return

    def note(signum: int, frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        ends.put(signal.Signals(signum).name)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
