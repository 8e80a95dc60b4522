"""The README's table: a line for each paper with the counts of its claims, and what the sentences before it say."""

import re

import pytest
from figures.synthetic import row, throughput
from figures.synthetic_clusters import clusters

from experiments.common.claims.ledger import claims_by_id, ledgers
from experiments.common.claims.verdicts import COLUMNS, Verdict, by_kind, by_source, counts, kind, paper_says, total
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines
from experiments.common.pages.reproduction import status_block

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
    table = cells(status_block(simulated))
    sizes = {ledger.paper: len(ledger.claims) for ledger in ledgers()}
    assert len(table) == len(sizes) == 5
    for name, claims, *outcomes in table:
        paper = re.search(r"#(\w+)\)", name)[1]
        assert int(claims) == sizes[paper] == sum(map(int, outcomes))
    verdicts = headlines(discover().values(), simulated)
    columns = [sum(int(line[2 + place]) for line in table) for place in range(len(COLUMNS))]
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
