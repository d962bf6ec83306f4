"""What the how-to pages show works: their code is run, their command lines are parsed, their unit is verified."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class
from django.db import connection, models
from django.test.utils import isolate_apps
from django.utils import timezone

from django_proletarian.testing import enqueued_jobs, run_jobs
from tests.docs.pages import REPOSITORY, Block, all_blocks, blocks
from tests.live.processes import sql, url_of

HOW_TO = REPOSITORY / "docs" / "how-to"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`shop.models`, whatever the page takes from there; `shop.jobs` is what `run_as_jobs` makes of it."""
    shop, shop_models = ModuleType("shop"), ModuleType("shop.models")
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.models", shop_models)
    return shop_models


def run_as_jobs(code: str) -> dict[str, Any]:
    """Run a page's block as the app's jobs.py would be; return the names in it."""
    names: dict[str, Any] = {"__name__": "shop.jobs"}
    exec(compile(code, "shop/jobs.py", "exec"), names)
    return names


# -- Moving from elsewhere -------------------------------------------------------------------------------------------


class Orders:
    """Orders in memory, and what was done with each."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.objects = self

    def create(self, email: str) -> Any:
        return self

    def get(self, pk: int) -> Any:
        assert pk == self.pk
        return self

    pk = 42

    def send_receipt(self, copy_to: str | None = None) -> None:
        self.done.append(("receipt", copy_to))

    def ask_for_review(self) -> None:
        self.done.append(("review", None))


MOVED = {
    "From Celery": [("receipt", "shop@example.com"), ("review", None)],
    "From django-tasks-db": [("receipt", None), ("receipt", None)],
    "From procrastinate": [("receipt", None), ("receipt", None)],
}


@pytest.mark.parametrize("section", MOVED)
@pytest.mark.django_db
def test_what_code_becomes_does_what_it_did(section: str, shop: Any) -> None:
    shop.Order = orders = Orders()
    after = block_below(HOW_TO / "migrating.md", f"## {section}", "After:")
    run_as_jobs(after)["place_order"]("jane@example.com")

    assert len(enqueued_jobs()) == 2
    run_jobs()
    assert orders.done == MOVED[section][:1], "the second job is for later"
    run_jobs(now=timezone.now() + timedelta(days=8))
    assert orders.done == MOVED[section]


@pytest.mark.parametrize("section", ["From Celery", "From procrastinate"])
def test_retries_are_as_many_and_as_late_as_they_were(section: str) -> None:
    from smtplib import SMTPServerDisconnected

    after = block_below(HOW_TO / "migrating.md", f"## {section}", "After:")
    strategy_alone = after[after.index("def when_") : after.index("@job_handler")]
    names = run_as_jobs(
        "from smtplib import SMTPException\nfrom django_proletarian import RetryStrategy\n" + strategy_alone
    )
    strategy = names["when_the_mail_server_is_away"](None, SMTPServerDisconnected())
    assert strategy.retries == 4
    delays = [delay.total_seconds() for delay in strategy.delays]
    # Celery: retry_backoff × 2 to the power of the retries before; procrastinate: wait, each time.
    assert delays == ([5 * 2**retry for retry in range(4)] if section == "From Celery" else [10])
    assert names["when_the_mail_server_is_away"](None, ValueError()) is None


def block_below(page: Path, heading: str, label: str) -> str:
    """The text of the first block that stands behind `label` in the section of `heading`."""
    line = page.read_text().split("\n").index(heading)
    start = page.read_text().split("\n").index(label, line)
    return next(block.text for block in blocks(page) if block.line > start)


# -- Clojure ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_django_enqueues_is_stored_as_clojure_names_it(shop: Any) -> None:
    names = {"Order": Orders()}
    exec(block_below(HOW_TO / "clojure.md", "## One queue for each side", FROM_DJANGO), names)
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_type, queue, payload FROM proletarian.job")
        assert cursor.fetchall() == [
            (":shipping.jobs/ship", ":shipping/default", '["^ ","~:order-id",42,"~:speed","express"]')
        ]


FROM_DJANGO = "From Django to Clojure: name the job type and the queue as they are in Clojure, without the colon."


@pytest.mark.django_db
def test_what_clojure_enqueues_reaches_the_handler(shop: Any) -> None:
    shop.Order = orders = Orders()
    [*_, handler] = blocks(HOW_TO / "clojure.md", "python")
    run_as_jobs("from shop.models import Order\n" + handler.text)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job VALUES (gen_random_uuid(), ':shop/mail', ':shop.jobs/send-receipt', "
            """'["^ ","~:order-id",42]', 0, now(), now())"""
        )
    run_jobs(queue="shop/mail")
    assert orders.done == [("receipt", None)]


# -- Tenants ---------------------------------------------------------------------------------------------------------


@isolate_apps("tests.app")
def test_a_job_works_in_its_tenants_schema_and_leaves_nothing_of_it(
    committed: None, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Order(models.Model):  # noqa: DJ008 # nobody prints it
        closed = models.BooleanField()

        class Meta:
            app_label = "app"
            db_table = "orders"

    shop.Order = Order
    [block] = blocks(HOW_TO / "tenants.md", "python")
    names = run_as_jobs(block.text)
    for tenant in ("acme", "Little Shop"):
        sql(
            url_of(),
            f'CREATE SCHEMA "{tenant}"; CREATE TABLE "{tenant}".orders (id serial, closed boolean);'
            f'INSERT INTO "{tenant}".orders (closed) VALUES (false)',
        )
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)  # the next job would have the same connection
    connection.close()
    try:
        names["ask_to_close_orders"]("Little Shop")
        [run] = run_jobs()
        assert run.result == 1
        orders = 'SELECT a.closed, l.closed FROM acme.orders a, "Little Shop".orders l'
        assert sql(url_of(), orders) == [(False, True)]
        with connection.cursor() as cursor:
            cursor.execute("SHOW search_path")
            assert cursor.fetchall() == [('"$user", public',)]
    finally:
        connection.close()
        sql(url_of(), 'DROP SCHEMA acme CASCADE; DROP SCHEMA "Little Shop" CASCADE')


# -- Deployments -----------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"manage\.py (proletarian_\w+)([^\n|#]*)")


def command_lines() -> Iterator[tuple[Block, str, list[str]]]:
    """All calls of our commands on all pages: as lines of a shell or a unit, and as YAML's and Docker's lists."""
    for block in all_blocks("console", "ini", "text", "yaml", "dockerfile"):
        # ["python", "manage.py", "x"] is python manage.py x
        text = re.sub(r'\["([^\]]*)"\]', lambda match: match[1].replace('", "', " "), block.text)
        for match in COMMAND.finditer(text):
            yield block, match[1], shlex.split(match[2].split("}")[0])


@pytest.mark.parametrize(("block", "command", "arguments"), list(command_lines()), ids=str)
def test_command_lines_are_understood(block: Block, command: str, arguments: list[str]) -> None:
    parser = load_command_class("django_proletarian", command).create_parser("manage.py", command)
    parser.parse_args(arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    [unit] = blocks(HOW_TO / "deploy.md", "ini")
    # The paths are those of the machine that it is for.
    text = unit.text.replace("/srv/shop/venv/bin/python", sys.executable).replace("/srv/shop", str(tmp_path))
    (tmp_path / "proletarian.service").write_text(text.replace("User=shop\n", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "proletarian.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pod_is_given_more_time_than_its_jobs() -> None:
    [block] = blocks(HOW_TO / "deploy.md", "yaml")
    pod = yaml.safe_load(block.text)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    arguments = container["args"]
    shutdown_timeout = int(arguments[arguments.index("--shutdown-timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] >= shutdown_timeout + 10  # after which the supervisor kills
    heartbeat = arguments[arguments.index("--heartbeat-file") + 1]
    assert all(heartbeat in container[probe]["exec"]["command"] for probe in ("startupProbe", "livenessProbe"))
    assert Path(heartbeat).is_relative_to(container["volumeMounts"][0]["mountPath"])
