"""Draw the diagrams: each .dot beside this file as an .svg, by Graphviz's `dot`. `make diagrams` calls this.

Colours are the page's, so that one drawing does in light and dark. The source's hash is kept in the drawing, by which a
test finds those that are out of date, also where there is no Graphviz.
"""

import hashlib
import html
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def drawn(source: Path) -> str:
    """The SVG of a source. Raises CalledProcessError if dot can't read it, FileNotFoundError if there is no dot."""
    svg = subprocess.run(["dot", "-Tsvg", source], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace('"black"', '"currentColor"').replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    svg = re.sub(r"<text (?![^>]*fill)", '<text fill="currentColor" ', svg)
    # As wide as the page at most.
    title = html.escape(source.read_text().split("\n")[0].removeprefix("// "))
    svg = re.sub(r'<svg width="(\d+)pt" height="\d+pt"', f'<svg role="img" aria-label="{title}" width="100%"', svg)
    return f"<!-- {source.name} {fingerprint(source)} -->\n{svg}"


def fingerprint(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def main() -> None:
    for source in sorted(HERE.glob("*.dot")):
        source.with_suffix(".svg").write_text(drawn(source))


if __name__ == "__main__":
    main()
