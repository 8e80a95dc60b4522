"""Cited sources are papers or entries of docs/decisions.md, never a text that is not in the repository."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^\*\*(D-\d+) ", re.MULTILINE)
CITED = re.compile(r"\bD-\d+\b")
RANGE = re.compile(r"\bD-(\d+) to D-(\d+)\b")
ABSENT = re.compile(
    r"\b(?:codecs?|collectives|schemes)\s+spec(?:ification)?s?\b|\bspec(?:ification)?s?,?\s+(?:section\s+)?\d"
)
CODE = sorted(path.relative_to(ROOT) for path in (ROOT / "ssfx").rglob("*.py"))
PAGES = sorted(path.relative_to(ROOT) for path in (*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")))


def entries() -> list[str]:
    return ENTRY.findall((ROOT / "docs" / "decisions.md").read_text())


def test_entries_are_numbered_once_each() -> None:
    found = entries()
    assert sorted(found) == sorted(f"D-{number}" for number in range(1, len(found) + 1))


@pytest.mark.parametrize("name", [*CODE, *PAGES], ids=str)
def test_every_decision_that_is_cited_is_there(name: Path) -> None:
    text = (ROOT / name).read_text()
    assert set(CITED.findall(text)) <= set(entries())
    assert all(int(first) < int(last) for first, last in RANGE.findall(text))


@pytest.mark.parametrize("name", CODE, ids=str)
def test_no_source_is_outside_the_repository(name: Path) -> None:
    found = ABSENT.search((ROOT / name).read_text())
    assert found is None, found
