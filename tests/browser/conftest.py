"""Fixtures of the browser tests: the shop, the system's Chromium, axe-core, and visitors.

They are skipped, with the reason, where there is no Chromium or no Playwright.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import NoChromium, chromium
from tests.browser.shop import Shop
from tests.browser.visitor import Visitor
from tests.scratch import scratch_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
ARTIFACTS = HERE.parents[1] / ".artifacts"
AXE = "axe-core@4.14.1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is `live` and `browser`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Ends with the last test here, since the other tests need the ORM."""
    with ExitStack() as opened:
        try:
            browser = opened.enter_context(chromium())
        except NoChromium as error:
            pytest.skip(str(error))
        yield browser


@pytest.fixture(scope="package")
def open_shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop, open for all tests here."""
    with scratch_database() as url:
        shop = Shop(url, tmp_path_factory.mktemp("shop") / "web.log")
        yield shop
        shop.close()


@pytest.fixture
def shop(open_shop: Shop) -> Shop:
    """The shop without any jobs."""
    open_shop.empty()
    return open_shop


@pytest.fixture(scope="package")
def people(browser: Browser, open_shop: Shop) -> Iterator[Callable[..., Visitor]]:
    """Visitors by name and options. Each keeps their page from test to test: a new one would fetch all files anew."""
    visitors: dict[tuple[object, ...], Visitor] = {}

    def person(name: str, **options: Any) -> Visitor:
        key = (name, *options.items())
        if key not in visitors:
            visitors[key] = Visitor(browser, open_shop.address, open_shop.sessions[name], **options)
        return visitors[key]

    yield person
    for visitor in visitors.values():
        visitor.close()


@pytest.fixture
def visit(
    request: pytest.FixtureRequest, shop: Shop, people: Callable[..., Visitor]
) -> Iterator[Callable[..., Visitor]]:
    """Let somebody in. Their last page is kept as a picture; anything that their browser complained of is a failure."""
    here: list[Visitor] = []

    def visit(name: str = "boss", **options: Any) -> Visitor:
        visitor = people(name, **options)
        visitor.looks()
        visitor.complaints.clear()
        here.append(visitor)
        return visitor

    yield visit
    test = request.node.name.removeprefix("test_")
    for number, visitor in enumerate(here):
        visitor.keep(f"{test}-{number + 1}" if number else test)
    assert [complaint for visitor in here for complaint in visitor.complaints] == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, got from npm the first time."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    kept = ARTIFACTS / f"{AXE}.js"
    if kept.exists():
        return kept.read_text()
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"no {AXE}: npm, which gets it, is not in the PATH")
    with tempfile.TemporaryDirectory() as directory:
        got = subprocess.run(
            [npm, "pack", "--silent", AXE], cwd=directory, capture_output=True, text=True, timeout=100, check=False
        )
        if got.returncode:
            pytest.skip(f"no {AXE}: npm pack failed: {got.stderr.strip()[-200:]}")
        [package] = Path(directory).glob("*.tgz")
        with tarfile.open(package) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            source = member.read()
        # At once, since other processes of the tests may be at it too.
        unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
        unfinished.write_bytes(source)
        unfinished.replace(kept)
    return kept.read_text()
