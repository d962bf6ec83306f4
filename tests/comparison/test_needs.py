"""What has to run beside PostgreSQL."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.comparison.claims import claim
from tests.comparison.shop import Shop
from tests.conftest import eventually

NEEDS = "needs beside PostgreSQL"


@claim(NEEDS, "django-proletarian", "nothing")
def test_ours_talks_to_nothing_but_the_database(shop: Shop) -> None:
    assert peers_of_worker(shop, "ours", "ours_that_is_killed.enqueue()") == {database(shop)}


@claim(NEEDS, "django-tasks-db", "nothing")
def test_theirs_talks_to_nothing_but_the_database(shop: Shop) -> None:
    assert peers_of_worker(shop, "django-tasks-db", "tasks_db_that_is_killed.enqueue()") == {database(shop)}


@claim(NEEDS, "procrastinate", "nothing")
def test_procrastinates_talks_to_nothing_but_the_database(shop: Shop) -> None:
    assert peers_of_worker(shop, "procrastinate", "procrastinate_that_is_killed.defer()") == {database(shop)}


def peers_of_worker(shop: Shop, queue: str, enqueue: str) -> set[int]:
    """The ports that a worker has TCP connections to while it runs a task."""
    shop.run(f"tasks.{enqueue}")
    shop.start(queue)
    [[pid]] = eventually(lambda: shop.sql("SELECT pid FROM project_run"))
    links = [file.readlink().name for file in Path(f"/proc/{pid}/fd").iterdir()]
    own = {inode for link in links for inode in re.findall(r"socket:\[(\d+)\]", link)}
    connections = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
    ]
    # Columns: number, local address, address of the other end as HOST:PORT in hexadecimal; the tenth is the inode.
    return {int(columns[2].rsplit(":", 1)[1], 16) for columns in connections if columns[9] in own}


def database(shop: Shop) -> int:
    port = urlsplit(shop.url).port
    assert port is not None
    return port


@claim(
    NEEDS,
    "Celery",
    "a broker, RabbitMQ unless told otherwise; its transports `sqlalchemy` and `pgmq` keep messages in PostgreSQL",
)
def test_celery_looks_for_rabbitmq_and_sends_nothing_without_a_broker(shop: Shop) -> None:
    said = shop.run(SEND_TO_NOBODY)
    assert "amqp://guest:**@localhost:5672//" in said
    assert "Connection refused, so it was not sent" in said


SEND_TO_NOBODY = """
import socket
from celery import Celery
from kombu.exceptions import OperationalError

print(Celery().connection().as_uri())
with socket.socket() as nobody_listens:
    nobody_listens.bind(("127.0.0.1", 0))
    app = Celery(broker=f"amqp://127.0.0.1:{nobody_listens.getsockname()[1]}//")
    app.conf.broker_transport_options = {"max_retries": 1}
    try:
        app.send_task("receipt", retry=False)
    except OperationalError as error:
        print(f"{error.__cause__}, so it was not sent")
"""


@pytest.mark.parametrize("name", ["sqlalchemy", "pgmq"])
def test_two_transports_of_celery_keep_messages_in_postgresql(name: str) -> None:
    """By what they say of themselves: each needs a package more, and pgmq an extension of the server."""
    from kombu.transport import TRANSPORT_ALIASES

    module = find_spec(TRANSPORT_ALIASES[name].partition(":")[0])
    assert module is not None
    assert "PostgreSQL" in Path(str(module.origin)).read_text()
