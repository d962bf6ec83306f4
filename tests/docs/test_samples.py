"""What the pages show can be pasted: code compiles, data parses, links lead somewhere."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from django.db import connection

from tests.docs.pages import PAGES, REPOSITORY, Block, all_blocks, prose

LANGUAGES = {"console", "sql", "text", "html", "clojure", "dockerfile", "promql"}  # what nothing here can parse
DIRECTIVE = re.compile(r"^\{[a-z:-]+\}")


@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def _ini(text: str) -> object:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    return parser.sections()


# Each returns what is there, and nothing for a text that says nothing.
PARSERS: dict[str, Callable[[str], object]] = {
    "json": lambda text: [json.loads(text)],
    "yaml": lambda text: [document for document in yaml.safe_load_all(text) if document is not None],
    "toml": tomllib.loads,
    "ini": _ini,
}


@pytest.mark.parametrize("block", all_blocks(*PARSERS), ids=str)
def test_data_parses(block: Block) -> None:
    assert PARSERS[block.language](block.text)


@pytest.mark.parametrize("block", all_blocks(), ids=str)
def test_each_block_says_what_it_is(block: Block) -> None:
    known = {"python", *PARSERS} | LANGUAGES
    assert block.language in known or DIRECTIVE.match(block.language), f"{block} is {block.language!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if heading:
            assert heading in headings(target), link


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("block", all_blocks("sql"), ids=str)
@pytest.mark.django_db
def test_sql_runs(block: Block) -> None:
    with connection.cursor() as cursor:
        cursor.execute(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_tests_that_pages_name_exist(page: Path) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
        assert (REPOSITORY / path).exists(), path
        assert not name or f"def {name}(" in (REPOSITORY / path).read_text(), f"{path} has no {name}"


def test_explanations_name_the_tests_behind_them() -> None:
    for page in (REPOSITORY / "docs" / "explanation").glob("*.md"):
        assert re.search(r"\n## Tested by\n\n\* `tests/", page.read_text()), page
