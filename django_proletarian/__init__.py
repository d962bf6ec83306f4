"""Durable PostgreSQL job queue for Django, row-for-row compatible with Clojure's Proletarian."""

from django_proletarian.api import aenqueue, aenqueue_many, create_queue_worker, enqueue, enqueue_many
from django_proletarian.decorators import JobHandler, job_handler
from django_proletarian.errors import (
    DuplicateJob,
    EnqueueError,
    InvalidHandler,
    InvalidRetryStrategy,
    JobInterrupted,
    JobTimeout,
    LeaseLost,
    NoHandler,
    PayloadDecodeError,
    PayloadEncodeError,
    ProletarianError,
)
from django_proletarian.interrupts import stop_requested, wait_or_stop
from django_proletarian.job import Job, current_job
from django_proletarian.names import PlainName
from django_proletarian.new_jobs import NewJob
from django_proletarian.queue_worker import QueueWorker
from django_proletarian.retry import RetryStrategy
from django_proletarian.version import __version__

__all__ = [
    "DuplicateJob",
    "EnqueueError",
    "InvalidHandler",
    "InvalidRetryStrategy",
    "Job",
    "JobHandler",
    "JobInterrupted",
    "JobTimeout",
    "LeaseLost",
    "NewJob",
    "NoHandler",
    "PayloadDecodeError",
    "PayloadEncodeError",
    "PlainName",
    "ProletarianError",
    "QueueWorker",
    "RetryStrategy",
    "__version__",
    "aenqueue",
    "aenqueue_many",
    "create_queue_worker",
    "current_job",
    "enqueue",
    "enqueue_many",
    "job_handler",
    "stop_requested",
    "wait_or_stop",
]
