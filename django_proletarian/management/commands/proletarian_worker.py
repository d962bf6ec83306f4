"""`manage.py proletarian_worker`: options, signals, exit code. The work is in `worker`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload
from django.utils.connection import ConnectionDoesNotExist
from psycopg.errors import InsufficientPrivilege, InvalidSchemaName, UndefinedTable

from django_proletarian import QueueWorker, create_queue_worker, names
from django_proletarian.worker import WorkerOptions

BY_ITSELF = "the worker ended by itself"


class Command(BaseCommand):
    help = "Runs the jobs of one or more queues until it is told to stop (SIGTERM or Ctrl-C; twice to stop at once)."

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

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"]:
            # Django's reloader runs this in a thread of a child process, and keeps the signals for itself.
            autoreload.run_with_reloader(self.run, options, signals=False)
        else:
            self.run(options, signals=True)

    def run(self, options: dict[str, Any], *, signals: bool) -> None:
        """Run a worker to its end. Raises CommandError if an error ended it; exits 1 if running jobs had to be left."""
        ends: SimpleQueue[str] = SimpleQueue()  # its put() may be called from a signal handler
        # First of all: a signal while the worker starts must stop it too.
        with stopping_on_signals(ends) if signals else nullcontext():
            log_to_stderr(options["verbosity"])
            worker = self.create_worker(options)
            worker.start(on_end=lambda: ends.put(BY_ITSELF))
            if ends.get() == BY_ITSELF:
                worker.join()
            elif not worker.stop():
                exit_now()
        if worker.error is not None:
            raise CommandError(explained(worker.error, worker.options)) from worker.error

    def create_worker(self, options: dict[str, Any]) -> QueueWorker:
        """The worker that the options ask for. Raises CommandError for options that can't be."""
        queues = options["queues"]
        try:
            return create_queue_worker(
                None if queues is None else [names.parse(queue) for queue in queues],
                database=options["database"],
                threads=options["threads"],
                polling_interval=options["polling_interval"],
                batch_size=options["batch_size"],
                shutdown_timeout=options["shutdown_timeout"],
                worker_id=options["worker_id"],
                drain=options["drain"],
                max_jobs=options["max_jobs"],
            )
        except (ValueError, ConnectionDoesNotExist) as error:
            raise CommandError(str(error)) from error


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


def log_to_stderr(verbosity: int) -> None:
    """Show the worker's log, if the project's LOGGING sends it nowhere: from INFO, or DEBUG with --verbosity 2."""
    logger = logging.getLogger("django_proletarian")
    if logger.hasHandlers() or verbosity == 0:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


def exit_now() -> NoReturn:
    """End the process although handlers run: the server gives up their jobs' locks, and the jobs stay queued."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # sys.exit would wait for threads that a handler has started, perhaps for ever.
    os._exit(1)


def explained(error: BaseException, options: WorkerOptions) -> str:
    """What ended the worker, for a person who has to mend it."""
    text = str(error).strip()
    if isinstance(error, UndefinedTable | InvalidSchemaName):
        migrate = f"manage.py migrate django_proletarian --database {options.database}"
        return f'The tables are missing in database "{options.database}": {text}\nMake them with: {migrate}'
    if isinstance(error, InsufficientPrivilege):
        return (
            f'The role that database "{options.database}" is used as lacks a right: {text}\n'
            f"It needs SELECT, INSERT, UPDATE and DELETE on {options.tables.job}, "
            f"and SELECT and INSERT on {options.tables.archived_job}."
        )
    return f"The worker stopped because of an error: {type(error).__name__}: {text}"
