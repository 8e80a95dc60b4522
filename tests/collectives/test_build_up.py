"""What all ranks select together: as planned loads describe it, and as real exchanges find it."""

import pytest
from collectives import work_reducers
from hypothesis import given
from hypothesis import strategies as st
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives

FELT = ("ok_topk", "sparcml_rd")
"""Whose sums of selections travel at the length that they have."""


@given(kept=st.integers(1, 10**6), world=st.integers(2, 64), data=st.data())
def test_ranks_together_select_at_least_what_one_does_and_at_most_as_many_each(kept, world, data):
    build_up = data.draw(st.floats(1, world))
    load = Load(10**9, 8 * kept, kept, world, build_up)
    counts = [load.together(ranks) for ranks in range(1, world + 1)]
    assert counts == sorted(counts)
    assert counts[0] == kept
    assert counts[-1] == pytest.approx(build_up * kept, abs=0.5 + 1e-6 * kept)
    assert all(count <= kept * ranks * (1 + 1e-9) for ranks, count in enumerate(counts, 1))


def test_without_overlap_nobody_selects_what_another_does():
    assert [Load(100, 80, 10, 4).together(ranks) for ranks in (1, 2, 4)] == [10, 20, 40]


@pytest.mark.parametrize("name", sorted(entry.name for entry in collectives))
def test_less_build_up_never_sends_more(name):
    def sent(build_up: float | None) -> int:
        return collectives.build(name).traffic(Load(100_000, 8_000, 1_000, 8, build_up)).sent_bytes

    amounts = [sent(build_up) for build_up in (1.0, 2.0, 5.0, 8.0)]
    assert amounts == sorted(amounts)
    assert amounts[-1] == sent(None)
    assert (amounts[0] < amounts[-1]) == (name in FELT)


def spread(world: int, kept: int, shared: int, numel: int) -> list[list[float]]:
    """Return the gradients of ranks, each of `kept` elements: `shared` of them common to all, the rest its own."""
    rows = [[0.0] * numel for _ in range(world)]
    for rank, row in enumerate(rows):
        own = range(shared + rank * (kept - shared), shared + (rank + 1) * (kept - shared))
        for i in (*range(shared), *own):
            row[i] = 1.0 + i
    return rows


@pytest.mark.parametrize(("shared", "build_up"), [(8, 1.0), (0, None)])
def test_real_sparse_streams_grow_as_planned_where_all_or_none_choose_alike(ranks: Ranks, shared: int, build_up):
    world, kept, numel = 4, 8, 400
    reports = ranks.run(work_reducers.steps, world, "sparcml_rd", [spread(world, kept, shared, numel)], kept)
    planned = collectives.build("sparcml_rd").traffic(Load(numel, 8 * kept, kept, world, build_up))
    assert reports[0][0].counted == planned
