"""Two ranks measure at the smallest sizes: everything that a TimingModel needs is there, the same on both."""

import math

import pytest
from calibration.work import codecs, exchanges, overheads

from ssfx.calibration.measure_exchange import PRIMITIVES
from ssfx.compressors import build


def test_every_primitive_is_measured_alone_and_under_compute(pool):
    first, second = pool.run(exchanges, 2)
    assert first == second
    assert list(dict.fromkeys(point["primitive"] for point in first)) == list(PRIMITIVES)
    sizes = {name: [p["nbytes"] for p in first if p["primitive"] == name] for name in PRIMITIVES}
    assert sizes.pop("all_to_all") == [8, 32]  # a part for every rank
    assert all(found == [4, 16, 64] for found in sizes.values())
    for point in first:
        assert point["alone_s"] > 0
        assert point["under_compute_s"] > 0
        assert point["under_compute_cpu_s"] > 0
        assert math.isfinite(point["under_compute_lost_s"])  # a difference of passes: noise may make it negative


# One of each kind: selected elements, codes, sums with a first round, sums of factors.
@pytest.mark.parametrize("name", ["dgc", "signsgd", "cltk", "powersgd"])
def test_codecs_are_measured_over_their_own_units(pool, name):
    first, second = pool.run(codecs, 2, [name])
    assert first == second
    found, compressor = first[name], build(name)
    shapes = [(16, 16), (32, 32)]
    assert [units for units, _ in found["encode"]] == [compressor.work([shape]) for shape in shapes]
    if compressor.sparse:
        entries = [2.0 * compressor.layout_of([shape], 0.01).indices for shape in shapes]
    else:
        entries = [(1 if compressor.additive else 2) * compressor.work([shape]) for shape in shapes]
    assert [size for size, _ in found["decode"]] == entries
    assert all(seconds > 0 for _, seconds in [*found["encode"], *found["decode"]])
    assert min(found["segment_s"], found["piece_s"], found["tensor_s"]) >= 0
    assert found["piece_s"] == 0 or name == "powersgd"


def test_overheads_are_those_of_the_runtimes_own_code(pool):
    first, second = pool.run(overheads, 2)
    assert first == second
    assert min(first.values()) >= 0
    assert first["finish_s"] > 0
    assert first["lane_s"] > first["fill_s_per_byte"] * 64  # issuing an exchange is more than copying its 16 numbers
