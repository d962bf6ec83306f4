"""Every exception that django-proletarian raises of its own, one class for each way a caller may act.

Raised by all layers; imports nothing, so that anything may import it.
"""

from __future__ import annotations


class ProletarianError(Exception):
    """Base of all errors of this package. JobInterrupted and JobTimeout, which end handlers, stand apart."""


class EnqueueError(ProletarianError, ValueError):
    """`enqueue` was given something that no job row can hold.

    Raised before any SQL is sent, so the caller's transaction is unharmed.
    """


class PayloadEncodeError(EnqueueError):
    """The payload holds a value that the serializer can't write; the message names its path in the payload."""


class DuplicateJob(EnqueueError):
    """A job with the given `job_id` is still in the queue; the caller's transaction is unharmed."""


class PayloadDecodeError(ProletarianError, ValueError):
    """A payload column holds text that the serializer can't read.

    The message has the position or path of the trouble, never the payload itself: payloads are other people's data.
    """


class NoHandler(ProletarianError, LookupError):
    """A job was claimed whose job type has no handler in this process, and no HANDLER setting catches it."""


class InvalidHandler(ProletarianError, TypeError):
    """`@job_handler` was given something that can't be a handler, or a job type that another function has."""


class InvalidRetryStrategy(ProletarianError, ValueError):
    """A retry strategy has negative or fractional retries, a negative delay, or is no strategy at all."""


class WorkerCrashed(ProletarianError):
    """The worker process died while it ran the job, by the job's own doing or a neighbour's.

    Never raised; given to retry strategies and failed-job callbacks as the error of such an attempt.
    """

    def __init__(self, how: str, stagger: float = 0.0) -> None:
        super().__init__(f"The worker process that ran this job {how}.")
        self.stagger = stagger  # seconds by which a retry is put off, so that jobs of one crash don't meet again


class JobTimeout(BaseException):
    """Raised in a handler that runs for longer than its time limit: the attempt has failed.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """


class JobInterrupted(BaseException):
    """Raised by a handler that gives up because the worker stops: the job stays queued, attempts unchanged.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """


class LeaseLost(JobInterrupted):
    """Raised in a handler whose job's lease is over: another worker may have the job, and nothing this one does counts.

    By the worker, at whatever the handler does then, and by `job.fence()`.
    """
