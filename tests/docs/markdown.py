"""Reading the project's Markdown files: relative links and fenced Python code."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HIDDEN = {".venv", ".ci", ".git", "node_modules"}
_BLOCK = re.compile(r"<!-- ([\w ]+): written by `make docs`; do not edit -->.*?<!-- end of \1 -->", re.DOTALL)


def documents() -> list[Path]:
    """Return every Markdown file of the project."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def links(path: Path) -> list[str]:
    """Return the targets of Markdown links and images, and of HTML images, that point into the project."""
    text = re.sub(r"```.*?```", "", (ROOT / path).read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", text) + re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def python_blocks(path: Path) -> list[str]:
    """Return the text of fenced Python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), flags=re.DOTALL | re.MULTILINE)


def by_hand(path: Path) -> str:
    """Return the text of a page without the blocks that `make docs` writes."""
    return _BLOCK.sub("\n\n", (ROOT / path).read_text())


def words(text: str) -> int:
    """Return the number of words; the bars and rules of a table are none."""
    return sum(any(letter.isalnum() for letter in token) for token in text.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of the prose: of paragraphs and items of lists, not of tables, headings and code."""
    prose = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    prose = re.sub(r"^(?:    |\|).*$", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"^#.*$", "\n", prose, flags=re.MULTILINE)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    parts = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", prose, flags=re.MULTILINE)
    return [one for part in parts for one in re.split(r"(?<=[.?!:;])[\])*\"]*\s+", part.strip())]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a Markdown file's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
