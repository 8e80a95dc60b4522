"""Every legal pair of compressor and memory, on real gloo processes: resume, rollback, equal replicas, conservation."""

from typing import Any

import pytest
from runtime import work
from runtime.ranks import Ranks
from runtime.test_conformance import assert_same

from ssfx.compressors import build, compressors
from ssfx.compressors.memories import check_pair, memories
from ssfx.core.errors import ConfigError
from ssfx.schemes.transport import keeps_fraction

Options = dict[str, Any]


def legal(compressor: str, memory: str) -> bool:
    try:
        check_pair(memories.build(memory), build(compressor))
    except ConfigError:
        return False
    return True


def pairs() -> list[Options]:
    made = []
    for one in compressors:
        for kept in memories:
            if legal(one.name, kept.name):
                options: Options = {"scheme": "per_tensor", "compressor": one.name, "memory": kept.name}
                made.append(options | ({"density": 0.05} if keeps_fraction(one.name) else {}))
    return made


PAIRS = pairs()
CONSERVING = [o for o in PAIRS if o["memory"] in ("residual", "momentum")]


def name(options: Options) -> str:
    return f"{options['compressor']}-{options['memory']}"


def test_every_compressor_is_in_some_pair() -> None:
    assert {o["compressor"] for o in PAIRS} == {one.name for one in compressors}
    assert {o["memory"] for o in PAIRS} == {one.name for one in memories}


@pytest.mark.slow
@pytest.mark.parametrize("options", PAIRS, ids=name)
def test_a_resumed_run_equals_an_uninterrupted_one(ranks: Ranks, options: Options) -> None:
    assert all(ranks.run(work.resumes_exactly, 2, options, 3))


@pytest.mark.slow
@pytest.mark.parametrize("options", PAIRS, ids=name)
def test_a_step_with_one_bad_number_leaves_no_trace(ranks: Ranks, options: Options) -> None:
    reports = ranks.run(work.rolls_back, 2, options, float("nan"))
    assert_same(reports[1]["weights"], reports[0]["weights"])
    for report in reports:
        assert report["skipped"]
        assert report["memory_kept"]
        assert report["weights_kept"]
        assert report["goes_on"]


@pytest.mark.slow
@pytest.mark.parametrize("options", PAIRS, ids=name)
def test_replicas_stay_equal(ranks: Ranks, options: Options) -> None:
    results = ranks.run(work.survives_disorder, 3, options)
    for weights in results[1:]:
        assert_same(weights, results[0])


@pytest.mark.parametrize("options", CONSERVING, ids=name)
def test_mass_is_conserved(ranks: Ranks, options: Options) -> None:
    for violation, _ in ranks.run(work.conserves_mass, 2, options):
        assert violation < 1e-4


@pytest.mark.parametrize("compressor", [one.name for one in compressors])
def test_planned_bytes_are_the_bytes_sent(ranks: Ranks, compressor: str) -> None:
    options = next(o for o in PAIRS if o["compressor"] == compressor)
    for planned, reported, counted in ranks.run(work.bytes_on_the_wire, 2, options):
        assert planned == reported == counted
