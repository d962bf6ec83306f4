"""The drawings are those of their sources."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import REPOSITORY

SOURCES = sorted((REPOSITORY / "docs" / "diagrams").glob("*.dot"))
DRAW = runpy.run_path(str(REPOSITORY / "docs" / "diagrams" / "draw.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_drawing_is_of_its_source_as_it_is_now(source: Path) -> None:
    drawing = source.with_suffix(".svg").read_text()
    assert f" {DRAW['fingerprint'](source)} " in drawing, "make diagrams"


@pytest.mark.skipif(shutil.which("dot") is None, reason="this machine has no Graphviz")
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_drawing_says_what_dot_draws_now(source: Path) -> None:
    """By its words: where they stand is for each version of Graphviz to say."""
    assert words(source.with_suffix(".svg").read_text()) == words(DRAW["drawn"](source))


def words(svg: str) -> list[str]:
    return sorted(each.text or "" for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))


def test_colours_are_the_pages_own() -> None:
    for source in SOURCES:
        svg = source.with_suffix(".svg").read_text()
        assert "currentColor" in svg
        assert "black" not in svg
