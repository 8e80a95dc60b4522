"""Each promise of docs/guarantees.md names tests that exist."""

import re

from docs.markdown import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()


def test_the_tests_that_promises_name_exist():
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    functions = {name for text in sources for name in re.findall(r"^ *def (test_\w+)\(", text, flags=re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert named <= functions
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []


def test_every_line_of_a_table_of_promises_names_a_test():
    promises = PAGE.partition("## Not guaranteed")[0]
    lines = [line for line in promises.splitlines() if line.startswith("| ")]
    bodies = [line for line in lines if not re.match(r"\| (---|promise|event|refused) ", line)]
    assert len(bodies) > 90
    assert [line for line in bodies if not re.search(r"`(test_|tests/)", line)] == []
