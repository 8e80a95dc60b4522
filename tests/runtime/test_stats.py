"""The statistics of a step against cases worked out by hand."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runtime import work_stats as work
from runtime.cases import Options, name, of_scheme
from runtime.ranks import Ranks

from ssfx.core.intervals import union_s
from ssfx.runtime.stats import Stopwatch, Tracer
from ssfx.schemes import schemes


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (5.0, 6.0)], 3.0),
        ([(1.0, 3.0), (2.0, 6.0)], 5.0),
        ([(1.0, 9.0), (2.0, 3.0), (8.0, 10.0)], 9.0),
        ([(5.0, 6.0), (1.0, 5.0)], 5.0),
        ([(1.0, 3.0), (2.0, 0.0)], 2.0),  # one that never ended
        ([(4.0, 4.0)], 0.0),
    ],
)
def test_union_of_spans(spans: list[tuple[float, float]], seconds: float) -> None:
    assert union_s(spans) == seconds


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_union_counts_every_covered_second_once(spans: list[tuple[int, int]]) -> None:
    covered = {second for start, end in spans for second in range(start, end)}
    assert union_s(spans) == len(covered)


def test_a_stopwatch_adds_up_by_stage_and_starts_again() -> None:
    watch = Stopwatch(torch.device("cpu"), Tracer(False, 0))
    with watch.time("compress"):
        pass
    once = watch.seconds("compress")
    with watch.time("compress"), watch.time("wait"):
        pass
    assert 0 < once < watch.seconds("compress")
    assert watch.seconds("wait") <= watch.seconds("compress")
    assert watch.seconds("decompress") == 0
    watch.reset()
    assert watch.seconds("compress") == 0


FUSED = {"scheme": "fused_all", "compressor": "topk", "density": 0.3}  # 18 of 60 elements


@pytest.mark.parametrize(
    ("options", "rates", "density"),
    [
        (FUSED, (2, 2), 18 / 60),  # rank 0 sends of `large` alone, rank 1 of `small` alone
        ({**FUSED, "density": 0.5}, (1, 1), 30 / 60),  # 20 of one tensor and 10 of the next
        ({**FUSED, "compressor": "dgc"}, (2, 2), 18 / 60),
        ({**FUSED, "scheme": "per_tensor"}, (0, 0), 18 / 60),
        ({**FUSED, "scheme": "per_tensor", "grouping": "none"}, (0, 0), 18 / 60),
        ({**FUSED, "density": 1.0}, (0, 0), 1.0),
        ({"scheme": "ddp"}, (0, 0), 1.0),
        ({"scheme": "ddp", "compressor": "fp16"}, (0, 0), 1.0),
    ],
    ids=["fused", "fused half", "fused dgc", "per tensor", "one message each", "all of it", "ddp", "fp16"],
)
def test_density_and_missing_tensors(
    ranks: Ranks, options: dict[str, Any], rates: tuple[int, int], density: float
) -> None:
    for (achieved, missing, tensors), expected in zip(ranks.run(work.missing, 2, options), rates, strict=True):
        assert tensors == 4
        assert achieved == pytest.approx(density)
        assert missing == expected / 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**FUSED, "compressor": "topk"}, [1.0]),
        ({**FUSED, "scheme": "per_tensor"}, [1.0, 1.0, 1.0]),
        ({**FUSED, "scheme": "per_tensor", "density": 0.03}, []),  # of 20 elements 0.6 are asked for
        ({**FUSED, "scheme": "per_tensor", "density": 0.13}, [2 / 2.6] * 3),
        ({**FUSED, "scheme": "per_tensor", "density": 0.13, "compressor": "dgc"}, [0.0, 3 / 2.6, 3 / 2.6]),
        ({**FUSED, "density": 1.0}, []),
        ({"scheme": "per_tensor", "compressor": "fp16"}, []),
        ({"scheme": "ddp"}, []),
    ],
    ids=["fused", "per tensor", "one element", "rounded down", "rounded up", "all of it", "every element", "ddp"],
)
def test_density_ratios_of_the_segments_that_send_a_fraction(
    ranks: Ranks, options: dict[str, Any], expected: list[float]
) -> None:
    at_once, later = ranks.run(work.ratios, 2, options)[0]
    assert at_once == later == pytest.approx(expected)


def cases() -> list[Options]:
    made = [of_scheme(scheme.name, 2) for scheme in schemes]
    made += [{"scheme": scheme.name, "compressor": "fp16"} for scheme in schemes if scheme.dense]
    return made + [{"scheme": s, "compressor": "dgc", "density": 0.05} for s in ("per_tensor", "ssfusion_oi")]


@pytest.mark.parametrize("options", cases(), ids=name)
@pytest.mark.parametrize("world", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_bytes_and_messages_are_what_plan_and_collectives_say(ranks: Ranks, options: Options, world: int) -> None:
    for rank in ranks.run(work.contributed, world, options):
        for contributed, planned, counted, described in rank:
            assert contributed == planned
            assert counted == described
            assert counted.messages > 0
