"""Text of generated pages: tables whose cells cannot break them."""

from collections.abc import Iterable, Sequence

NOTE = "written by `make docs`; do not edit"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar inside a cell is escaped, for it would start another cell."""
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    head, *body = [f"| {' | '.join(line)} |" for line in escaped]
    return "\n".join([head, "| " + " | ".join("---" for _ in header) + " |", *body])


def code(text: str) -> str:
    """Return the text as a code span."""
    return f"`{text}`"


def none_yet(command: str, what: str = "No such rows are", them: str = "them") -> str:
    """Return the sentence that stands where a table has nothing to show, with the command that makes it."""
    return f"*{what} committed yet; `{command}` makes {them}.*"
