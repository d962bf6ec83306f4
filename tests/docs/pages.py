"""The pages of the documentation, README included, as tests look at them: their code blocks, tables and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: what is written behind its fence, its text, and where it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


FENCE = re.compile(r"^ *(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^ *(?P=fence)\n", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The code blocks of a page in the order of the page; those in `languages`, or all."""
    text = page.read_text()
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"].strip(), match["text"])
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, *languages)]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("\n", page.read_text())


def rows(page: Path, heading: str = "") -> list[list[str]]:
    """The cells of all table rows below `heading`, or of the page; the tables' own headings are left out."""
    text = prose(page)
    if heading:
        level = heading.split(maxsplit=1)[0]
        text = text.split(f"\n{heading}\n", 1)[1]
        text = re.split(rf"\n#{{1,{len(level)}}} ", text, maxsplit=1)[0]
    lines = text.split("\n")
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if line.startswith("|")
        and not line.startswith("|---")
        and not "".join(lines[number + 1 : number + 2]).startswith("|---")
    ]


def codes(cell: str) -> list[str]:
    """What is in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)
