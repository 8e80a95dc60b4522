"""Row-sparse sums: the golden case, exact sums of any table, exact traffic on every rank."""

import random

import pytest
import torch
from collectives import golden, work_blocks
from runtime.ranks import Ranks

from ssfx.collectives import Load, collectives
from ssfx.collectives.primitives import split_starts
from ssfx.core.errors import ConfigError

WORLDS = (1, 2, 3, pytest.param(5, marks=pytest.mark.slow))


def table(rows: int, width: int, share: float, seed: int) -> tuple[list[float], list[int]]:
    """Return a flat table of quarters, zero outside about `share` of its rows, and the numbers of those."""
    rng = random.Random(seed)
    touched = [r for r in range(rows) if rng.random() < share]
    values = [[rng.randint(1, 40) / 4 for _ in range(width)] if r in touched else [0.0] * width for r in range(rows)]
    return [value for row in values for value in row], touched


def test_golden(ranks: Ranks) -> None:
    case = golden.CASES["parallax_P3"]
    p, rows, dim = (case["params"][key] for key in ("P", "num_rows", "dim"))
    expected = case["expected"]

    def flat(table: dict[str, list[float]]) -> list[float]:
        return [float(value) for r in range(rows) for value in table.get(str(r), [0.0] * dim)]

    assert split_starts(rows, p) == expected["row_starts"]
    numbers = [sorted(map(int, table)) for table in case["inputs"]["rows"]]
    row_bytes, longest = 4 + 4 * dim, max(map(len, expected["owned_result_rows"]))
    collective = collectives.build(f"row_sparse(width={dim})")
    results = ranks.run(
        work_blocks.summed, p, f"row_sparse(width={dim})", [flat(rows) for rows in case["inputs"]["rows"]]
    )
    for rank, (total, counted, _) in enumerate(results):
        assert total.tolist() == flat(expected["sum_rows"])
        assert counted == collective.sent(numbers, rows * dim, 4, rank)
        sizes = 2 * 8 * (p - 1)  # of what goes to the owners, and of what they have
        to_owners = expected["rows_sent_to_other_owners"][rank] * row_bytes
        assert counted.sent_bytes == sizes + to_owners + (p - 1) * longest * row_bytes


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (2, 5), (7, 3), (40, 4)])
def test_the_sum_is_the_dense_one_and_traffic_as_described(ranks: Ranks, world: int, rows: int, width: int) -> None:
    spec = f"row_sparse(width={width})"
    for share in (0.0, 0.2, 1.0):
        made = [table(rows, width, share, seed=10 * rows + rank) for rank in range(world)]
        values, numbers = [values for values, _ in made], [touched for _, touched in made]
        for rank, (total, counted, in_place) in enumerate(ranks.run(work_blocks.summed, world, spec, values)):
            assert in_place
            assert torch.equal(total, torch.tensor(values).sum(0))
            assert counted == collectives.build(spec).sent(numbers, rows * width, 4, rank), (share, rank)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_any_floating_dtype(ranks: Ranks, dtype: str) -> None:
    made = [table(11, 3, 0.4, seed=rank) for rank in range(3)]
    values, numbers = [values for values, _ in made], [touched for _, touched in made]
    item_bytes = getattr(torch, dtype).itemsize
    for rank, (total, counted, _) in enumerate(ranks.run(work_blocks.summed, 3, "row_sparse(width=3)", values, dtype)):
        assert total.dtype == getattr(torch, dtype)
        assert torch.equal(total.double(), torch.tensor(values).sum(0).double())
        assert counted == collectives.build("row_sparse(width=3)").sent(numbers, 33, item_bytes, rank)


def test_a_row_of_zeros_on_one_rank_is_no_less_exact_when_others_cancel(ranks: Ranks) -> None:
    values = [[1.5, 0.0, 0.0, 0.0], [-1.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]]
    for total, _, _ in ranks.run(work_blocks.summed, 3, "row_sparse(width=2)", values):
        assert total.tolist() == [0.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize("world", [2, 3, 8])
def test_planned_traffic_is_that_of_touched_rows_spread_evenly(world: int) -> None:
    rows, width = 24 * world, 5
    whole = collectives.build(f"row_sparse(width={width},touched=1.0)")
    load = Load.dense(4 * rows * width, world)
    assert whole.traffic(load) == whole.sent([list(range(rows))] * world, rows * width, 4, 0)
    few = collectives.build(f"row_sparse(width={width},touched=0.01)")
    dense = collectives.build("all_reduce").traffic(load).sent_bytes
    assert few.traffic(load).sent_bytes < dense / 4 < dense < whole.traffic(load).sent_bytes


def test_a_message_that_is_no_table_of_this_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"row_sparse\(width=7\) cannot cut 20 elements into rows"):
        collectives.build("row_sparse(width=7)").phases(Load.dense(80, 2))


@pytest.mark.parametrize("options", ["width=0", "touched=0.0", "touched=2.0"])
def test_impossible_options_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match=r"collective row_sparse: .* must be"):
        collectives.build(f"row_sparse({options})")
