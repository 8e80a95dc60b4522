"""Two ranks measure at the smallest sizes: everything that a TimingModel needs is there, the same on both."""

import pytest
from calibration.work import codecs, exchanges, overheads

from ssfx.calibration.measure_exchange import PRIMITIVES
from ssfx.compressors import build

QUEUED = ("queued_s", "queued_beside_s", "queued_cpu_s", "queued_lost_s")


def test_every_primitive_is_measured_alone_and_beside_computing(pool):
    first, second = pool.run(exchanges, 2)
    assert first == second
    assert list(dict.fromkeys(point["primitive"] for point in first)) == list(PRIMITIVES)
    sizes = {name: [p["nbytes"] for p in first if p["primitive"] == name] for name in PRIMITIVES}
    assert sizes.pop("all_to_all") == [8, 32]  # a part for every rank
    assert all(found == [4, 16, 64] for found in sizes.values())
    for point in first:
        assert point["alone_s"] > 0
        assert point["beside_s"] > 0
        assert point["beside_cpu_s"] > 0
        assert abs(point["beside_lost_s"]) < point["beside_s"], point
        asynchronous = point["primitive"] in ("all_reduce", "all_gather", "all_gather_twice")
        assert [isinstance(point[key], float) for key in QUEUED] == [asynchronous] * len(QUEUED)


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
