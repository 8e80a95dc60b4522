"""The README's table: a line for each paper with the counts of its claims, and what the sentences before it say."""

import re

import pytest
from figures.synthetic import row, throughput
from figures.synthetic_clusters import clusters

from experiments.common.claims.ledger import claims_by_id, ledgers
from experiments.common.claims.verdicts import COLUMNS, Verdict, by_kind, by_source, counts, kind, paper_says, total
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines
from experiments.common.pages.markdown import table
from experiments.common.pages.options_page import options_page
from experiments.common.pages.reproduction import by_other_times, paper_blocks, status_block
from ssfx.lab.config.cases import resolve_job

CLAIMS = claims_by_id()


@pytest.fixture(scope="module")
def simulated():
    return clusters()


def cells(text):
    """Return the cells of every line of the table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


@pytest.mark.slow
def test_every_paper_has_one_line_whose_counts_add_up(simulated):
    lines = cells(status_block(simulated))
    sizes = {ledger.paper: len(ledger.claims) for ledger in ledgers()}
    assert len(lines) == len(sizes) == 5
    for name, claims, *outcomes in lines:
        paper = re.search(r"/(\w+)/README.md\)", name)[1]
        assert int(claims) == sizes[paper] == sum(map(int, outcomes))
    verdicts = headlines(discover().values(), simulated)
    columns = [sum(int(line[2 + place]) for line in lines) for place in range(len(COLUMNS))]
    assert columns == [total(verdicts)[column] for column in COLUMNS]


@pytest.mark.slow
def test_the_sentence_counts_sources_and_kinds_apart(simulated):
    text = " ".join(status_block(simulated).split("\n\n")[0].split())
    assert "Of 657 claims of 5 papers, " in text
    verdicts = headlines(discover().values(), simulated)
    found = by_source(verdicts)
    judged = sum(found["simulated (nominal)"].values())
    assert judged > 20
    assert f"simulated (nominal): {found['simulated (nominal)']['agrees']} of {judged} agree" in text
    assert "orderings: " in text


@pytest.mark.slow
def test_the_sentence_says_that_no_row_is_of_a_gpu_until_one_is(simulated):
    without = [*throughput(), *simulated]  # simulated rows name a GPU, but none was there
    assert any(one.case.device == "cuda" for one in without)
    assert "No row here comes from a GPU; single compressors were timed on one, an H200." in " ".join(
        status_block(without).split()
    )
    text = " ".join(status_block([*without, row(device="cuda", hardware="2 Invented GPUs")]).split())
    assert "No row here comes from a GPU" not in text
    assert "1 rows come from GPUs (2 Invented GPUs)." in text


def test_kinds_of_claims_are_told_apart():
    assert kind(CLAIMS["ssfusion.exp1.best"]) == "orderings"
    assert kind(CLAIMS["ssfusion.exp1.resnet152"]) == "ranges"
    assert kind(CLAIMS["ssfusion.exp2.lstm.dense"]) == "numbers"
    assert kind(CLAIMS["ssfusion.setup.density"]) == "set-ups and formulas"
    assert paper_says(CLAIMS["ssfusion.exp1.resnet152"]) == "28.7 to 74.2 %"
    assert paper_says(CLAIMS["ssfusion.exp1.best"]) == "as stated"


def test_counts_are_of_the_verdicts_given():
    given = {name: Verdict(name, "agrees", "1", "computed") for name in CLAIMS}
    assert counts(CLAIMS.values(), given) == {"agrees": 657}
    assert sum(found["agrees"] for found in by_kind(given).values()) == 657
    assert by_source(given) == {"computed": {"agrees": 657}}


@pytest.mark.slow
def test_a_paper_has_a_line_for_every_figure_and_its_claims_add_up(simulated):
    verdicts, blocks = headlines(discover().values(), simulated), paper_blocks(simulated)
    for ledger in ledgers():
        lines = cells(blocks[ledger.paper].partition("\n\n")[0])
        named = {re.sub(r"\[(.*?)\].*", r"\1", figure) for figure, *_ in lines}
        assert {figure for figure in discover() if figure.startswith(f"{ledger.paper}.")} <= named
        numbers = [int(number) for *_, claims in lines for number in re.findall(r"(\d+) \w", claims)]
        assert sum(numbers) == len(ledger.claims) == sum(one.partition(".")[0] == ledger.paper for one in verdicts)


def test_cells_of_tables_cannot_break_them():
    assert table(("a", "b"), [("x|y", "z")]) == "| a | b |\n| --- | --- |\n| x\\|y | z |"


def test_the_report_says_how_many_verdicts_hang_on_the_calibration() -> None:
    found = [
        Verdict(claim, word, "1", "simulated", calibration, "a test")
        for claim, words in {"a": ("disagrees", "agrees"), "b": ("agrees", "disagrees"), "c": ("agrees",)}.items()
        for word, calibration in zip(words, ("nominal", "published"), strict=False)
    ]
    said = by_other_times(found)
    assert said.startswith("2 claims have a verdict by nominal times")
    assert "1 of those that disagree agree by the latter, 1 the other" in said


def test_the_commands_of_the_page_of_options_set_what_they_name():
    commands = re.findall(r"^    ssfx run (.*?)\s+#", options_page(), flags=re.MULTILINE)
    assert len(commands) == 3
    first, second, third = [resolve_job(words.split()).cases[0] for words in commands]
    assert (first.scheme_options, second.compressor) == ({"teams": 2}, "dgc(mode=faithful)")
    assert third.memory == "momentum(decay=0.9)"
