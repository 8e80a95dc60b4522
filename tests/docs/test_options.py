"""docs/options.md lists every registered component with every option, its default and what docstrings say about it."""

import re
from dataclasses import dataclass, fields

import pytest

from experiments.common.pages import readme as docs
from experiments.common.pages.options_page import options_page
from ssfx.collectives import collectives
from ssfx.compressors import compressors
from ssfx.compressors.memories import memories
from ssfx.config.option_text import described, types, value
from ssfx.lab.config.cases import resolve_job
from ssfx.schemes import schemes
from ssfx.schemes.per_tensor import PerTensorOptions

KINDS = {"Schemes": schemes, "Compressors": compressors, "Memories": memories, "Collectives": collectives}


def components(page, kind):
    """Return the text below the heading of each component of a kind, by its name."""
    part = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", part, flags=re.MULTILINE | re.DOTALL))


def test_the_page_is_what_the_registries_give():
    assert docs.OPTIONS.read_text() == options_page(), "run `make docs` and commit"


@pytest.mark.parametrize("kind", KINDS)
def test_every_component_stands_there_with_source_options_and_defaults(kind):
    found = components(options_page(), kind)
    assert list(found) == KINDS[kind].names()
    for entry in KINDS[kind]:
        text = found[entry.name]
        options = entry.defaults if kind == "Schemes" else entry.options
        assert f"Source: {entry.source if kind == 'Schemes' else entry.cls.source}." in text
        lines = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.+?) \| (.+) \|$", text, flags=re.MULTILINE)
        assert [(name, default) for name, default, *_ in lines] == [
            (field.name, value(getattr(options, field.name)).replace("|", "\\|")) for field in fields(options)
        ]


def test_meanings_come_from_the_docstring_of_the_option_its_class_or_its_collective():
    page = options_page()
    spardl = components(page, "Schemes")["spardl"]
    assert "| `density` | `0.01` | number | [shared](#options-that-several-schemes-share) |" in spardl
    assert '"faithful" is the loop of the authors\' code' in components(page, "Compressors")["dgc"]


def test_the_commands_of_the_page_set_what_they_name():
    commands = re.findall(r"^    ssfx run (.*?)\s+#", options_page(), flags=re.MULTILINE)
    assert len(commands) == 3
    cases = [resolve_job(words.split()).cases[0] for words in commands]
    assert cases[0].scheme_options == {"teams": 2}
    assert cases[1].compressor == "dgc(mode=faithful)"
    assert cases[2].memory == "momentum(decay=0.9)"


@dataclass(frozen=True)
class Headed:
    """Both of them.

    `rank` of the factors; `warm` starts from `last`. It helps.
    """

    rank: int = 4
    warm: bool = True
    last: float = 0.5
    other: str = ""


@dataclass(frozen=True)
class Plain(Headed):
    """stride, span: of the search. down: "no": never. Below `other`, nothing."""

    stride: int = 1
    span: int = 2
    down: str | None = None


@dataclass(frozen=True)
class Whole:
    """fast: up to `loops`; `mode` both: as told; down: never."""

    loops: int = 1
    mode: str = "fast"
    down: float = 0.5


def test_docstrings_are_cut_where_a_sentence_begins_with_an_option():
    assert described(Headed).prose == "Both of them."
    assert described(Headed).each == {
        "rank": "`rank` of the factors", "warm": "`warm` starts from `last`. It helps.", "last": "see `warm`",
    }  # fmt: skip
    # `other` is not Plain's own, so what Headed says of it counts.
    assert described(Plain).each == {
        "stride": "of the search.", "span": "see `stride`", "down": '"no": never. Below `other`, nothing.',
    }  # fmt: skip


def test_a_word_is_no_option_where_options_are_in_backticks():
    assert described(Whole).prose == "fast: up to `loops`;"[:-1] + "."
    assert described(Whole).each == {"mode": "`mode` both: as told; down: never."}


def test_types_and_defaults_are_as_typed():
    assert types(Plain)["down"] == "text or null"
    assert types(PerTensorOptions)["grouping"] == "cap, scaled_cap, none"
    assert [value(default) for default in (None, True, 0.1, 26214400, "", "all")] == [
        "null", "true", "0.1", "26214400", '""', "all",
    ]  # fmt: skip
