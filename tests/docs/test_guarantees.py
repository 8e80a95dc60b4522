"""Each promise of docs/guarantees.md names tests that exist."""

import re

from docs.markdown import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()


def test_the_tests_that_promises_name_exist():
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    functions = {name for text in sources for name in re.findall(r"^ *def (test_\w+)\(", text, flags=re.MULTILINE)}
    functions |= {name for text in sources for name in re.findall(r"^def (\w+)\(one: Rank", text, flags=re.MULTILINE)}
    named = {name for line in _lines() for name in re.findall(r"`(\w+)`", line.split(" | ")[-1])}
    assert len(named) > 90
    assert named <= functions
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []


def _lines():
    promises = PAGE.partition("## Not guaranteed")[0]
    return [line for line in promises.splitlines() if re.match(r"\| (?!---|promise|event|refused) *", line)]


def test_every_line_of_a_table_of_promises_names_a_test():
    assert len(_lines()) > 90
    assert [line for line in _lines() if not re.search(r"`(\w+|tests/.*)`", line.split(" | ")[-1])] == []
