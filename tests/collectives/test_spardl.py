"""SparDL: its golden cases message by message, its schedule for any team size, teams, tiny vectors, refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch
from collectives import golden, work_reducers
from collectives.test_reducers import agree, gradients
from collectives.work_reducers import Step
from plan.instances import affine_costs, instance_a
from runtime.pool import Pools
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives, spar_reduce_scatter
from ssfx.collectives.pairs import Entries, Records
from ssfx.collectives.primitives import bruck_rounds
from ssfx.collectives.spar_reduce_scatter import Share, SparReduceScatter, SparReduceScatterOptions, scatter_rounds
from ssfx.core.errors import ConfigError
from ssfx.schemes.make_plan import make_plan


class Bruck(SparReduceScatterOptions):
    """Any number of teams gathers shares of adaptive size (B-SAG)."""

    recursive = False


def reducer(teams: int, sag: str) -> SparReduceScatter:
    """Return SparDL with teams that come together as "R" or "B" says."""
    return SparReduceScatter((Bruck if sag == "B" else SparReduceScatterOptions)(teams))


def cases(scheme: str) -> list[Any]:
    """Return the golden cases of a scheme; those of more ranks than the small pool has are slow."""
    ids = golden.of_scheme(scheme)
    return [pytest.param(i, marks=pytest.mark.slow if golden.CASES[i]["params"]["P"] > 3 else []) for i in ids]


def positions(block: dict[str, float]) -> Listed:
    return {int(index): value for index, value in block.items()}


@pytest.mark.parametrize("name", cases("spardl"))
def test_golden_cases_message_by_message(pool: Pools, name: str) -> None:
    case = golden.CASES[name]
    params, shares = case["params"], case["params"]["h_per_rank"]
    world, size, teams = params["P"], params["team_size_Q"], params["num_teams_d"]
    grads, kept = case["inputs"]["grad_per_step"], params["k_block"] * size
    results = pool.run(watched, world, reducer(teams, params["sag"]), grads, kept, shares)
    for rank, (steps, seen) in enumerate(results):
        messages, selections, found = iter(seen.messages), iter(seen.selections), iter(seen.found)
        for step, expected in zip(steps, case["expected"]["steps"], strict=True):
            for entry in expected["srs_log"]:
                sent = entry["sent"][rank]
                to, lists = next(messages)
                assert (sent["src"], sent["dst"]) == (rank, to)
                assert [positions(block) for block in sent["blocks"].values()] == lists
                first = to % size
                assert [int(block) for block in sent["blocks"]] == [(first + x) % size for x in range(len(lists))]
                assert len(lists) == entry["blocks_per_message"]
                assert [next(selections) for _ in lists] == lists
            assert next(selections) == positions(expected["own_block_after_srs"][rank])
            across = {"none": 0, "R": (teams - 1).bit_length(), "B": len(bruck_rounds(teams))}[params["sag"]]
            for _ in range(across + len(bruck_rounds(size))):
                next(messages)
            if params["sag"] == "B":
                assert next(found) == expected["sag_nnz"][rank]
            assert step.indices == expected["final_indices"]
            assert step.total.tolist() == expected["sum"]
            assert step.residual.tolist() == expected["residual"][rank]
            assert step.counted.sent_bytes == expected["payload_bytes_sent_per_rank"][rank]
            assert step.counted == step.described
            if shares:
                moved = Share(shares[rank], 1).after(expected["sag_nnz"][rank], params["k_block"], teams)
                kept_within = moved.within(params["k_block"], teams)
                assert step.state["share"].tolist() == [kept_within.entries, kept_within.step, kept_within.sped]


def test_golden_schedule() -> None:
    for size, rounds in golden.CASES["spardl_schedule"]["expected"].items():
        assert scatter_rounds(int(size[1:])) == [tuple(entry) for entry in rounds]


@pytest.mark.parametrize("size", range(1, 64))
def test_every_contribution_reaches_its_owner_once(size: int) -> None:
    # held[w][j] is the multiset of ranks whose part of block j is at member w.
    held = [[[w] for _ in range(size)] for w in range(size)]
    for distance, blocks in scatter_rounds(size):
        moves = []
        for w in range(size):
            for x in range(blocks):
                j = (w + distance + x) % size
                moves.append(((w + distance) % size, j, held[w][j]))
                held[w][j] = []
        for to, j, sources in moves:
            held[to][j] = held[to][j] + sources
    for j in range(size):
        assert sorted(held[j][j]) == list(range(size))
        assert not any(held[w][j] for w in range(size) if w != j)


@pytest.mark.parametrize("size", range(1, 64))
def test_bruck_brings_every_part_to_every_member_once(size: int) -> None:
    held = [[w] for w in range(size)]
    for distance, parts in bruck_rounds(size):
        held = [own + held[(w + distance) % size][:parts] for w, own in enumerate(held)]
    for w, parts in enumerate(held):
        assert parts == [(w + x) % size for x in range(size)]
    assert len(bruck_rounds(size)) == len(scatter_rounds(size)) == (size - 1).bit_length()


def test_golden_share_adaptation() -> None:
    case = golden.CASES["spardl_h_adaptation"]
    budget, teams = case["params"]["k_block"], case["params"]["d"]
    share = Share(*case["params"]["start"])
    for entry in case["expected"]["trace"]:
        assert [share.entries, share.step, share.sped] == entry["before"]
        share = share.after(entry["nnz"], budget, teams)
        assert [share.entries, share.step, share.sped] == entry["after"]


def test_a_share_stays_within_its_bounds_and_turns_back_at_once() -> None:
    share = Share.start(1000, 4)
    assert (share.entries, share.step) == (250, 7)
    for _ in range(300):
        share = share.after(500, 1000, 4).within(1000, 4)
    assert (share.entries, abs(share.step)) == (1000, 750)
    for _ in range(3):
        share = share.after(2000, 1000, 4).within(1000, 4)
    assert share.entries < 1000
    assert Share.start(1, 4).within(1, 4) == Share(1, 1)


@pytest.mark.parametrize(
    ("world", "spec"),
    [
        (2, (2, "R")),
        (2, (2, "B")),
        (3, (3, "B")),
        pytest.param(4, (2, "R"), marks=pytest.mark.slow),
        pytest.param(4, (4, "R"), marks=pytest.mark.slow),
        pytest.param(4, (4, "B"), marks=pytest.mark.slow),
        pytest.param(6, (2, "B"), marks=pytest.mark.slow),
        pytest.param(6, (3, "B"), marks=pytest.mark.slow),
        pytest.param(5, (5, "B"), marks=pytest.mark.slow),
    ],
)
def test_teams_conserve_mass_and_agree(ranks: Ranks, world: int, spec: tuple[int, str]) -> None:
    powers_of_two = spec[0] in (2, 4)  # a third or fifth of what was dropped is rounded
    for numel in (1, 3, 12, 1000):
        for kept in sorted({1, max(1, numel // 10), numel}):
            grads = gradients(world, numel, 4, seed=numel + kept)
            reports = ranks.run(work_reducers.steps, world, reducer(*spec), grads, kept)
            before = torch.zeros(numel)
            for step, rows in enumerate(zip(*reports, strict=True)):
                put_in = torch.tensor(grads[step]).sum(0) + before
                before = torch.stack([row.residual for row in rows]).sum(0)
                gap = (put_in - rows[0].total - before).abs().max()
                assert gap <= (0 if powers_of_two else 1e-4), (numel, kept, step)
                agree(rows)
                size = world // spec[0]
                for rank, row in enumerate(rows):
                    assert torch.equal(row.state["share"], rows[rank % size].state["share"])


@pytest.mark.parametrize(
    ("world", "spec"), [(2, (2, "R")), (3, (3, "B")), pytest.param(6, (2, "B"), marks=pytest.mark.slow)]
)
def test_teams_hear_of_a_bad_rank_without_another_message(ranks: Ranks, world: int, spec: tuple[int, str]) -> None:
    for culprit in range(world):
        grads = gradients(world, 40, 2, seed=1)
        grads[1][culprit][7] = float("nan")
        for first, second in ranks.run(work_reducers.steps, world, reducer(*spec), grads, 6):
            assert bool(torch.isfinite(first.total).all())
            assert bool(torch.isnan(second.total).any())
            assert second.counted == second.described
            assert second.counted.messages <= first.counted.messages


def test_fewer_entries_than_ranks_still_send_one_a_block(ranks: Ranks) -> None:
    grads = [[[4.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0], [0.0] * 8 + [1.0], [0.0] * 9]]
    for (report,) in ranks.run(work_reducers.steps, 3, "spar_reduce_scatter", grads, 1):
        assert report.indices == [0, 4, 8]
        assert report.total[[0, 4, 8]].tolist() == [4.0, 2.0, 2.0]


def test_nothing_to_keep_sends_headers_and_leaves_everything(ranks: Ranks) -> None:
    grads = gradients(3, 9, 1, seed=3)
    for rank, (report,) in enumerate(ranks.run(work_reducers.steps, 3, "spar_reduce_scatter", grads, 0)):
        assert report.indices == []
        assert report.residual.tolist() == grads[0][rank]
        assert report.counted.sent_bytes == 4 * 4


def test_values_that_cancel_stay_where_they_were(ranks: Ranks) -> None:
    grads = [[[5.0, 0.0, 1.0, 0.0], [-5.0, 0.0, 0.0, 2.0]]]
    for rank, (report,) in enumerate(ranks.run(work_reducers.steps, 2, "spar_reduce_scatter", grads, 2)):
        assert report.indices == [3]
        assert report.residual.tolist() == [*grads[0][rank][:3], 0.0]


@pytest.mark.parametrize(
    ("spec", "bytes_per_rank"),
    [("spar_reduce_scatter", 2 * 7 * 100), ("spar_reduce_scatter(teams=2)", (2 * 3 + 1) * 196)],
)
def test_the_planned_bytes_are_those_of_the_paper(spec: str, bytes_per_rank: int) -> None:
    used = collectives.build(spec).traffic(Load(10_000, 800, 96, 8))
    assert used.sent_bytes == bytes_per_rank
    assert used.messages == {"spar_reduce_scatter": 6}.get(spec, 5)


def test_no_team_is_refused() -> None:
    with pytest.raises(ConfigError, match="teams must be at least 1"):
        collectives.build("spar_reduce_scatter(teams=0)")


@pytest.mark.parametrize(("teams", "nearest"), [(4, 3), (5, 6), (12, 6)])
def test_teams_that_cannot_be_equal_are_refused_with_the_nearest(teams: int, nearest: int) -> None:
    with pytest.raises(ConfigError, match=f"6 ranks do not form {teams} equal teams; use teams={nearest}"):
        reducer(teams, "B").phases(Load(100, 80, 10, 6))


def test_the_scheme_names_its_teams_in_the_plan() -> None:
    plan = make_plan("spardl", instance_a(), affine_costs(8), {"density": 0.001, "teams": 4})
    (lane,) = (lane for _, lane in plan.lanes())
    assert lane.collective == "spar_reduce_scatter(teams=4)"
    assert [(s.compressor, s.density, len(s.tensors)) for s in lane.segments] == [("topk", 0.001, 12)]


def test_the_scheme_refuses_what_the_collective_refuses() -> None:
    for options, message in (
        ({"teams": 3}, "8 ranks do not form 3 equal teams; use teams=2"),
        ({"compressor": "dgc"}, "scheme=spardl with compressor=dgc: it takes topk only"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_plan("spardl", instance_a(), affine_costs(8), options)


# ---- on each rank ---------------------------------------------------------------------------------------------------


Listed = dict[int, float]


@dataclass
class Seen:
    """On one rank: (receiver, its lists) of every message, every selection, and how many entries teams had together."""

    messages: list[tuple[int, list[Listed]]] = field(default_factory=list)
    selections: list[Listed] = field(default_factory=list)
    found: list[int] = field(default_factory=list)


def watched(
    group: Any,
    rank: int,
    world: int,
    spec: SparReduceScatter,
    grads: list[list[list[float]]],
    kept: int,
    shares: list[Any] | None,
) -> tuple[list[Step], Seen]:
    """Run some steps; shares[rank] is what the rank brings to a gather across teams."""
    seen = Seen()
    swap, take, combine = Records.swap, spar_reduce_scatter.take_largest, spar_reduce_scatter._combined

    def seen_swap(self: Records, to: int, leaving: list[Entries], *rest: Any) -> list[Entries]:
        seen.messages.append((to, [listed(entries) for entries in leaving]))
        return swap(self, to, leaving, *rest)

    def seen_take(vector: torch.Tensor, k: int) -> Entries:
        entries = take(vector, k)
        seen.selections.append(listed(entries))
        return entries

    def seen_combine(*given: Any) -> Any:
        result = combine(*given)
        seen.found.append(result[2])
        return result

    state = {"share": [shares[rank], 1, 0]} if shares else None
    with (
        patch.object(Records, "swap", seen_swap),
        patch.object(spar_reduce_scatter, "take_largest", seen_take),
        patch.object(spar_reduce_scatter, "_combined", seen_combine),
    ):
        return work_reducers.steps(group, rank, world, spec, grads, kept, state=state), seen


def listed(entries: Entries) -> Listed:
    """Return entries as a dictionary."""
    return dict(zip(entries[0].tolist(), entries[1].tolist(), strict=True))
