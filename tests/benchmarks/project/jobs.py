"""Handlers of the benchmark: one that does nothing, one that writes a row, one that tells when it ran."""

import functools
import socket
import struct
import time

from django_proletarian import Job, job_handler
from tests.benchmarks.project.models import Row

TOLD = struct.Struct("dd")  # seconds since 1970: when the handler began, and its job's process_at


@job_handler("bench/nothing")
def nothing(payload: object) -> None:
    pass


@job_handler("bench/insert-row", atomic=True)
def insert_row(payload: object) -> None:
    Row.objects.create(text="one row")


@job_handler("bench/tell", advanced=True)
def tell(job: Job) -> None:
    """Send the time to the UDP port of this machine that is the payload."""
    began = time.time()
    _socket().sendto(TOLD.pack(began, job.process_at.timestamp()), ("127.0.0.1", job.payload))


@functools.cache
def _socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
