"""The README's table: which claims it names, what stands beside them, and that it stays short."""

import re
from dataclasses import replace

import pytest
from figures.synthetic import throughput
from figures.synthetic_clusters import SPEEDS, clusters, setting, simulated
from ssfx.pages.wording import COMPARED, NAMED, label, named
from ssfx.pages.wording import simulated as claims_of

from ssfx.claims.ledger import ledgers
from ssfx.claims.simulated import judged
from ssfx.figures.discovery import discover
from ssfx.pages.readme import reference_rows
from ssfx.pages.status_table import CELL, status_block

LINES = 25
"""Most lines of the table, with its head."""


def cells(rows):
    """Return the cells of every line of the table, without its head."""
    lines = [line for line in status_block(rows).splitlines() if line.startswith("|")]
    return [re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |")) for line in lines[2:]]


@pytest.mark.parametrize("rows", [reference_rows, lambda: [*throughput(), *clusters()], list])
def test_the_table_is_short_and_so_are_its_cells(rows):
    table = cells(rows())
    assert {len(line) for line in table} == {3}
    assert len(table) + 2 <= LINES
    assert max(len(cell) for line in table for cell in line) <= CELL
    assert not [line for line in table if not all(line)]


def test_every_figure_has_a_line_with_its_command():
    table = cells(reference_rows())
    for figure in discover().values():
        own = [line for line in table if line[0].startswith(label(figure))]
        assert any(f"`{figure.command}`" == line[1] or f"#{figure.name.replace('.', '')}" in line[1] for line in own)


def test_a_claim_stands_beside_the_papers_value_ours_and_a_verdict():
    line = next(line for line in cells(clusters()) if "every compared scheme" in line[0])
    assert line[0].startswith("Fig. 11: Full system trains faster")
    assert line[0].endswith(": +28 to +107 %")
    assert line[1].startswith("`ssfx run experiment=throughput cluster=16gpu")
    assert line[2] == "simulated: nominal +31 to +64 % (agrees), published +31 to +64 % (agrees)"


def test_real_runs_are_counted_with_what_their_claims_came_to():
    rows = throughput()
    line = next(line for line in cells(rows) if line[0] == "Fig. 11: training throughput per workload and scheme")
    assert line[2] == f"measured on CPU, {len(rows)} runs; claims: 2 not comparable"
    assert {line[2] for line in cells([])} == {"not run yet"}


def test_the_first_claims_of_the_ledger_that_can_be_compared_are_named():
    order = [claim.id for ledger in ledgers() for claim in ledger.claims]
    rows = reference_rows()
    for figure in discover().values():
        found = claims_of(figure, rows)
        able = {one.claim.id for one in found if one.verdict != "not comparable"}
        assert [claim.id for claim in named(found)] == sorted(able, key=order.index)[:NAMED]


def test_what_came_out_has_no_say_in_which_claims_are_named():
    found = judged("ssfusion.fig11", [*setting(), *setting(calibration="published:5e6f7a8b")])
    slow = judged("ssfusion.fig11", [simulated(scheme, speed=2000 - SPEEDS[scheme]) for scheme in SPEEDS])
    turned = [replace(one, values=tuple(1000 + value for value in one.values)) for one in found]
    assert {one.verdict for one in found if one.claim in named(found)} == {"agree"}
    for other in (slow, turned):
        assert {one.verdict for one in other if one.claim in named(found)} == {"disagree"}
        assert named(other) == named(found)


def test_claims_without_a_line_are_counted_in_the_last_one():
    rows = reference_rows()
    found = [one for figure in discover().values() for one in claims_of(figure, rows)]
    shown = {claim.id for figure in discover().values() for claim in named(claims_of(figure, rows))}
    able = {one.claim.id for one in found if one.verdict in COMPARED} - shown
    unable = {one.claim.id for one in found if one.verdict == "not comparable"}
    last = cells(rows)[-1]
    assert last[0] == f"{len(able)} more claims of these figures, and {len(unable)} that cannot be compared"
    for calibration in ("nominal", "published"):
        counts = [int(number) for number in re.findall(r"\d+", re.search(rf"{calibration} ([^;]*)", last[2])[1])]
        assert sum(counts) == len(able)
