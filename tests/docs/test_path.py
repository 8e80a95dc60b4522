"""The reader's path that docs/index.md names is complete, in order, and short enough to be read in a sitting."""

import re

from docs.markdown import ROOT

MOST_WORDS = 9_500


def path() -> list[str]:
    """Return the pages of the path, relative to docs/, in the order of the index."""
    part = (ROOT / "docs" / "index.md").read_text().partition("## The reader's path")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. \[[^]]+\]\(([^)]+)\)", part, flags=re.MULTILINE)


def test_the_path_leads_from_the_readme_to_contributing():
    pages = path()
    assert pages[0] == "../README.md"
    assert pages[-1] == "../CONTRIBUTING.md"
    assert len(set(pages)) == len(pages) >= 8


def test_the_path_is_short():
    words = {name: len((ROOT / "docs" / name).read_text().split()) for name in ("index.md", *path())}
    assert sum(words.values()) < MOST_WORDS, words
